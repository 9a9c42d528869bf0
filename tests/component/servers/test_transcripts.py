"""Transcripts of the token benchmark, recorded once more with the demo servers of this tree."""

import contextlib
import importlib
from pathlib import Path

import pytest
from mcp import Client
from record_transcripts import DEMO, Recorder
from transcript_tasks import TASKS, BenchTask
from transcripts import load_transcripts

RECORDED = {each.task: each for each in load_transcripts()}
DEMO_TASKS = [task for task in TASKS if task.servers and set(task.servers) <= set(DEMO)]


@pytest.mark.parametrize("task", DEMO_TASKS, ids=lambda task: task.name)
async def test_a_transcript_has_what_the_servers_return(task: BenchTask, tmp_path: Path) -> None:
    for arm in ("direct", "code"):
        async with contextlib.AsyncExitStack() as stack:
            clients = {}
            for server in task.servers:
                module = importlib.reload(importlib.import_module(f"mcp_exec_servers.{server}"))
                clients[server] = await stack.enter_async_context(Client(module.server))
            recorder = Recorder(clients, tmp_path)
            found = await (recorder.direct(task) if arm == "direct" else recorder.code(task))
        assert found == RECORDED[task.name].arms[arm], "run: python bench/record_transcripts.py"


def test_every_task_has_its_transcript() -> None:
    assert [task.name for task in TASKS] == list(RECORDED)
    assert len(DEMO_TASKS) >= 8
