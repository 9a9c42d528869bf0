"""The benchmark with a real model, on a real cluster, with the turns of the transcripts in the model's place."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import toolservers
from tests.e2e.support import ROOT, Cluster
from tests.e2e.toolservers import running
from tests.support.model_servers.messages_api import KEY, MessagesApi
from tests.support.model_servers.script import Turn, says
from tests.support.pace import paced

BENCH = ROOT / "bench"
TASKS = ("no tool needed", "triage old issues", "commits by author", "copy a file to a sheet", "remember notes")
"""In the order of the transcripts, which the script of the model follows."""
SERVERS = ("github-official", "git", "filesystem", "sheets", "memory")
"""Those that the tasks need."""
pytestmark = pytest.mark.timeout(300)


def live(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, BENCH / "live.py", *options],
        env=os.environ | {"NO_PROXY": "*", **environment},
        capture_output=True,
        text=True,
        timeout=paced(240),
        check=False,
    )


@pytest.fixture(scope="module")
def servers(installed: Cluster, runtimes: dict[str, str | None]) -> Iterator[None]:
    printed = live("--servers", toolservers.IMAGE, runtimes.get("gvisor") or "")
    items = json.loads(printed.stdout)["items"]
    with running(installed, *(each for each in items if each["metadata"]["name"] in SERVERS)):
        yield


def turns_of(task: str, arm: str) -> list[list[dict[str, Any]]]:
    """Return the model's turns of a transcript."""
    (path,) = (BENCH / "data" / "transcripts").glob(f"*-{task.replace(' ', '-')}.json")
    messages = json.loads(path.read_text())["arms"][arm]
    return [message["content"] for message in messages if message["role"] == "assistant"]


def test_both_arms_do_the_tasks_and_are_judged_by_what_they_did(
    servers: None, url: str, api_key: str, tmp_path: Path
) -> None:
    script: list[Any] = [turn for task in TASKS for arm in ("direct", "code") for turn in turns_of(task, arm)]
    # the last task is done a second time, by a model that only says so
    script[-len(turns_of(TASKS[-1], "code")) :] = [Turn(blocks=[says("I stored all of it.")])]
    out = tmp_path / "live.json"
    chosen = [word for task in TASKS for word in ("--task", task)]
    with MessagesApi(*script).serving() as model:
        done = live(
            *chosen, "--json", str(out), MCP_EXEC_GATEWAY=url, MCP_EXEC_API_KEY=api_key,
            ANTHROPIC_API_KEY=KEY, ANTHROPIC_BASE_URL=model.url, LLM_PROVIDER="", LLM_MODEL="",
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    found = json.loads(out.read_text())
    failed = [(run["task"], run["arm"]) for run in found["runs"] if not run["succeeded"]]
    assert failed == [("remember notes", "code")], done.stdout
    direct, code = found["arms"]["direct"], found["arms"]["code"]
    assert (direct["runs"], direct["succeeded"], code["succeeded"]) == (5, 5, 4)
    assert direct["input"] > 3 * code["input"]
    assert direct["money"] > code["money"] > 0
    assert "| direct | 5 of 5 |" in done.stdout


def test_a_model_that_stands_in_for_another_one_is_refused() -> None:
    done = live("--fallback", "openai:gpt", ANTHROPIC_API_KEY=KEY)
    assert done.returncode == 2
    assert "unrecognized arguments: --fallback" in done.stderr
