"""Hostile and careless code in each language: every run ends once, in time, for the same reason, and leaves nothing."""

import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.component.sandbox.conftest import Run, SandboxProcess
from tests.support.channel_code import FLOODS, WAIT, build_done, flood_channel, write_to_channel
from tests.support.hostile_code import LEAVE, LOOK, ROWS, Row
from tests.support.pace import paced

from mcp_exec_sandbox.protocol import LANGUAGES

GRACE_SECONDS = 0.7
FLOOD_SECONDS = paced(4)
"""How long a flood may hold up the supervisor: the flood uses all processors of the machine."""
SLACK_SECONDS = paced(10)
"""The grace of the supervisor, and time for a busy machine."""
OWNER = "0" * 32
Object = dict[str, Any]

pytestmark = pytest.mark.parametrize("language", LANGUAGES)


@pytest.fixture
def context() -> Object:
    """A port that is free: all sandboxes of the tests share the machine's ports."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return {"port": free.getsockname()[1]}


def recycle(sandbox: SandboxProcess, execution: str) -> Any:
    return sandbox.client.post("/v1/recycle", json={"id": execution})


@pytest.mark.parametrize("name", ROWS)
def test_every_run_ends_once_in_time_and_says_why(make_sandbox: Any, name: str, language: str) -> None:
    row: Row = ROWS[name]
    sandbox: SandboxProcess = make_sandbox(language=language, **row.settings)
    run: Run = sandbox.run(getattr(row, language), timeoutSeconds=row.seconds)
    assert run.phase == row.phase or row.phase == "*", run.error
    assert run.reason in row.reasons, run.error
    if row.message:
        assert row.message in run.error["message"]
    if row.stdout is not None:
        assert run.stdout == row.stdout
    if row.results:
        assert run.result in row.results
    if run.reason == "OutputLimit":
        assert run.end["truncated"] is True
    assert run.end["runMs"] < (row.seconds + SLACK_SECONDS) * 1000
    assert [event["type"] for event in run.events].count("end") == 1
    assert run.events[-1]["type"] == "end"
    assert len(run.events) < 5000
    assert len(json.dumps(run.end)) < 40_000
    assert abs(run.end["exitCode"] or 0) < 256
    assert run.result != 666
    assert sandbox.client.get("/healthz").json()["state"] == "finished"


@pytest.mark.parametrize("flood", FLOODS)
def test_a_run_that_floods_the_control_channel_ends_soon_after_its_time(
    make_sandbox: Any, flood: str, language: str
) -> None:
    sandbox: SandboxProcess = make_sandbox(language=language)
    run = sandbox.run(flood_channel(*FLOODS[flood])[language], timeoutSeconds=0.3)
    assert run.reason in ("Timeout", "OutputLimit"), run.error
    assert run.end["runMs"] < (0.3 + GRACE_SECONDS + FLOOD_SECONDS) * 1000
    assert [event["type"] for event in run.events].count("end") == 1
    assert sandbox.client.get("/healthz").json()["state"] == "finished"


def test_a_forged_result_is_held_to_its_bound(make_sandbox: Any, language: str) -> None:
    code = write_to_channel((build_done(hasValue=True, value="x" * 100_000), 1), then=WAIT)
    run = make_sandbox(language=language).run(code[language], outputBytes=1000)
    assert run.result_truncated
    assert len(json.dumps(run.result)) <= 1000


BOTH_STREAMS = {
    "python": "import sys\nprint('o' * 5000)\nprint('e' * 100, file=sys.stderr)",
    "typescript": "console.log('o'.repeat(5000));\nconsole.error('e'.repeat(100));",
}


def test_both_streams_are_bounded_each_by_itself(make_sandbox: Any, language: str) -> None:
    run = make_sandbox(language=language).run(BOTH_STREAMS[language], outputBytes=1000)
    assert run.stdout == "o" * 500 + "\n[... 4001 bytes cut ...]\n" + "o" * 499 + "\n"
    assert run.stderr == "e" * 100 + "\n"


def test_code_sees_all_that_it_leaves_itself(make_sandbox: Any, context: Object, language: str) -> None:
    """What makes the next test mean something."""
    sandbox: SandboxProcess = make_sandbox(language=language)
    first = sandbox.run(LOOK[language], id="1", owner=OWNER, context=context)
    assert recycle(sandbox, "1").status_code == 200
    code = LEAVE[language].replace("process.exit(0);", "") + LOOK[language]
    second = sandbox.run(code, id="2", owner=OWNER, context=context, timeoutSeconds=2)
    before, after = (
        list(run.result.values()) if isinstance(run.result, dict) else run.result for run in (first, second)
    )
    assert len(before) == len(after) > 3, second.error
    assert [number for number, value in enumerate(before) if after[number] == value] == []


def test_nothing_that_code_leaves_reaches_the_next_run(make_sandbox: Any, context: Object, language: str) -> None:
    sandbox: SandboxProcess = make_sandbox(language=language)
    first = sandbox.run(LOOK[language], id="1", owner=OWNER, context=context)
    assert first.error is None
    assert recycle(sandbox, "1").json()["state"] == "idle"
    left = sandbox.run(LEAVE[language], id="2", owner=OWNER, context=context)
    assert left.phase == "Succeeded", left.error
    answer = recycle(sandbox, "2")
    assert (answer.status_code, answer.json()["uses"]) == (200, 2), answer.text
    assert sandbox.run(LOOK[language], id="3", owner=OWNER, context=context).result == first.result


@pytest.mark.parametrize("name", ["memory of bytes without end", "a kill of itself"])
def test_a_sandbox_whose_limits_were_reached_or_whose_interpreter_died_is_not_used_again(
    make_sandbox: Any, name: str, language: str
) -> None:
    row = ROWS[name]
    sandbox: SandboxProcess = make_sandbox(language=language, **row.settings)
    assert sandbox.run(getattr(row, language), owner=OWNER).phase == "Failed"
    for _ in range(2):
        answer = recycle(sandbox, "uid-1")
        assert answer.status_code == 500
        assert "the last execution ended with" in answer.json()["error"]
    body = {"id": "uid-2", "owner": OWNER, "code": "1", "context": {}, "timeoutSeconds": 15, "outputBytes": 65536}
    assert sandbox.client.post("/v1/execution", json=body).status_code == 409


KILLED = {
    "python": "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nopen('left', 'w').close()\n"
    "while True: pass",
    "typescript": "process.on('SIGINT', () => {});\nDeno.writeTextFileSync('left', '');\nwhile (true) {}",
}


def test_code_that_has_to_be_killed_leaves_nothing_either(make_sandbox: Any, context: Object, language: str) -> None:
    sandbox: SandboxProcess = make_sandbox(language=language)
    first = sandbox.run(LOOK[language], owner=OWNER, context=context)
    assert recycle(sandbox, "uid-1").status_code == 200
    killed = sandbox.run(KILLED[language], id="uid-2", owner=OWNER, timeoutSeconds=0.3)
    assert killed.reason == "Timeout"
    assert recycle(sandbox, "uid-2").status_code == 200
    assert sandbox.run(LOOK[language], id="uid-3", owner=OWNER, context=context).result == first.result


SECRETS = {
    "python": "import os\n[name for name in os.environ if name.startswith(('MCP_EXEC_', 'KUBERNETES_'))]",
    "typescript": "Object.keys(Deno.env.toObject()).filter((name) => /^(MCP_EXEC_|KUBERNETES_)/.test(name))",
}


def test_code_gets_no_variable_of_the_container(make_sandbox: Any, language: str) -> None:
    assert make_sandbox(language=language).run(SECRETS[language]).result == []


KILL_ALL = {
    "python": "import os\ntry:\n    os.kill(-1, 9)\nexcept OSError:\n    pass\nos.getppid()",
    "typescript": "try { process.kill(-1, 'SIGKILL') } catch { /* refused */ }\nprocess.ppid",
}


def test_the_supervisor_ignores_signals_of_its_code_even_without_the_filter(make_sandbox: Any, language: str) -> None:
    """As PID 1 of a namespace, where the kernel sends what it would send in a container."""
    user = () if os.getuid() == 0 else ("--user", "--map-current-user")
    wrapper = ("unshare", *user, "--pid", "--fork", "--mount-proc", "--kill-child")
    sandbox: SandboxProcess = make_sandbox(language=language, wrapper=wrapper)
    run = sandbox.run(KILL_ALL[language])
    assert (run.phase, run.result) == ("Succeeded", 1), run.error
    assert sandbox.client.get("/healthz").json()["state"] == "finished"


SAY_AND_WAIT = {
    "python": "import threading\nprint('on', flush=True)\nthreading.Event().wait()",
    "typescript": "console.log('on');\nawait new Promise(() => {});",
}


@pytest.fixture
def waiting(make_sandbox: Any, language: str) -> Iterator[tuple[Path, list[Path]]]:
    """The supervisor's folder in /proc, and those of the processes below it while code runs."""
    if os.getuid() != 0:
        pytest.skip("only root sees what the processes of another user have")
    sandbox: SandboxProcess = make_sandbox(language=language)
    lines = sandbox.start(SAY_AND_WAIT[language]).iter_lines()
    assert any('"on' in line for line in lines)
    yield Path(f"/proc/{sandbox.process.pid}"), [Path(f"/proc/{pid}") for pid in list_children(sandbox.process.pid)]
    assert sandbox.client.delete("/v1/execution").status_code == 202
    assert '"Cancelled"' in list(lines)[-1]


def list_children(pid: int) -> list[int]:
    """Return the processes below a process."""
    found = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return found + [below for each in found for below in list_children(each)]


def test_each_process_of_the_code_has_the_filter_of_system_calls(waiting: tuple[Path, list[Path]]) -> None:
    _, processes = waiting
    states = [re.search(r"^Seccomp:\t(\d)$", (each / "status").read_text(), re.MULTILINE) for each in processes]
    assert processes
    assert {state and state[1] for state in states} == {"2"}


def test_no_process_of_the_code_has_a_socket_of_the_supervisor(waiting: tuple[Path, list[Path]]) -> None:
    supervisor, processes = waiting
    own = list_sockets(supervisor)
    assert own
    assert [list_sockets(each) & own for each in processes] == [set()] * len(processes)


def list_sockets(process: Path) -> set[str]:
    return {target for each in (process / "fd").iterdir() if (target := os.readlink(each)).startswith("socket:")}
