"""Transcripts of the token benchmark, recorded once more with the demo servers of this tree."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mcp import Client
from record_transcripts import Recorder, load_demo
from transcripts import ARMS, DEMO, Arm, Transcript, load_transcripts

DEMO_TASKS = [each for each in load_transcripts() if each.servers and set(each.servers) <= set(DEMO)]


@contextlib.asynccontextmanager
async def recording(task: Transcript, folder: Path) -> AsyncIterator[Recorder]:
    async with contextlib.AsyncExitStack() as stack:
        yield Recorder(
            {server: await stack.enter_async_context(Client(load_demo(server))) for server in task.servers}, folder
        )


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("task", DEMO_TASKS, ids=lambda task: task.task)
async def test_a_transcript_has_what_the_servers_return(task: Transcript, arm: Arm, tmp_path: Path) -> None:
    async with recording(task, tmp_path) as recorder:
        found = await recorder.renew(task.arms[arm])
    assert found == task.arms[arm], "run: python bench/record_transcripts.py"


async def test_a_transcript_without_results_gets_them(tmp_path: Path) -> None:
    task = DEMO_TASKS[0]
    turns = [task.arms["code"][0], *task.arms["code"][1::2]]
    async with recording(task, tmp_path) as recorder:
        assert await recorder.renew(turns) == task.arms["code"]


def test_many_tasks_need_the_demo_servers_only() -> None:
    assert len(DEMO_TASKS) >= 8
