"""The supervisor's own life: start, stop, and the death of its runner."""

import json
import os
import select
import signal

import httpx
import pytest
from tests.support.pace import paced

SECONDS = paced(20)


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def exit_code(sandbox):
    return sandbox.process.wait(SECONDS)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_supervisor_ends_at_once(sandbox, number):
    assert sandbox.client.get("/healthz").status_code == 200
    (runner,) = children_of(sandbox.process.pid)
    sandbox.process.send_signal(number)
    assert exit_code(sandbox) == 0
    assert not os.path.exists(f"/proc/{runner}/fd/0")


def test_a_stop_during_a_run_cuts_the_stream_before_its_end(sandbox):
    response = sandbox.start("import threading\nthreading.Event().wait()\n")
    lines = response.iter_lines()
    assert json.loads(next(lines))["type"] == "status"
    sandbox.process.terminate()
    assert exit_code(sandbox) == 0
    with pytest.raises(httpx.RemoteProtocolError):
        list(lines)


def test_a_stop_after_the_run_leaves_complete_streams_alone(sandbox):
    response = sandbox.start("print(1)")
    events = [json.loads(line) for line in response.iter_lines()]
    sandbox.process.terminate()
    assert exit_code(sandbox) == 0
    assert events[-1]["phase"] == "Succeeded"


def test_other_signals_are_ignored(sandbox):
    assert sandbox.client.get("/healthz").status_code == 200
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT, signal.SIGALRM, signal.SIGPIPE):
        sandbox.process.send_signal(number)
    assert sandbox.run("1").result == 1


def test_a_runner_that_dies_before_its_job_ends_the_supervisor(sandbox):
    assert sandbox.client.get("/healthz").status_code == 200
    (runner,) = children_of(sandbox.process.pid)
    os.kill(runner, signal.SIGKILL)
    assert exit_code(sandbox) == 1


def test_a_bad_setting_is_named(make_sandbox):
    sandbox = make_sandbox(port="x")
    assert exit_code(sandbox) == 2
    assert b"MCP_EXEC_PORT" in sandbox.process.stderr.read()


def test_modules_that_the_pool_names_are_imported_before_the_code(make_sandbox):
    sandbox = make_sandbox(preimport="email.mime.text,wave")
    assert sandbox.run("import sys; [name in sys.modules for name in ('wave', 'email.mime.text')]").result == [True] * 2
    assert [each["module"] for each in sandbox.ready["preimport"]] == ["email.mime.text", "wave"]
    assert all(each["ms"] >= 0 and each["memoryBytes"] >= 0 for each in sandbox.ready["preimport"])


@pytest.mark.parametrize(
    ("module", "error"),
    [
        ("no_such_module", "ModuleNotFoundError"),
        ("json.missing", "ModuleNotFoundError"),
        ("unittest.__main__", "SystemExit"),
    ],
)
def test_a_module_that_cannot_be_imported_ends_the_sandbox_with_the_reason(make_sandbox, module, error):
    sandbox = make_sandbox(preimport=f"json,{module}")
    assert exit_code(sandbox) == 1
    last = json.loads(sandbox.process.stdout.read().decode().splitlines()[-1])
    assert last["reason"] == "PreimportFailed"
    assert module in last["message"]
    assert error in last["message"]


def test_output_is_in_the_log_only_if_the_pool_asks_for_it(make_sandbox):
    code = "import sys; print('one\\ntwo', end=''); print('\\x1b[2J', file=sys.stderr)"
    for settings, expected in (
        ({}, []),
        ({"log_output": "true"}, ["stderr | \\x1b[2J", "stdout | one", "stdout | two"]),
    ):
        sandbox = make_sandbox(**settings)
        assert sandbox.run(code).stdout == "one\ntwo"
        sandbox.process.terminate()
        logged = sandbox.process.stdout.read().decode().splitlines()
        assert sorted(line for line in logged if not line.startswith("{")) == expected


def test_an_idle_supervisor_does_nothing(sandbox):
    """Nothing but a request wakes it: no timer and no poll would leave its count of switches alone."""
    assert sandbox.client.get("/healthz").status_code == 200

    def switches():
        with open(f"/proc/{sandbox.process.pid}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("voluntary"))

    before = switches()
    # Waits for output that never comes.
    readable, _, _ = select.select([sandbox.process.stdout], [], [], 0.5)
    assert not readable
    assert switches() - before <= 1


def test_modules_in_the_workspace_never_reach_the_supervisor(sandbox):
    for name in ("json", "codecs", "h11", "zipimport", "encodings", "idna"):
        (sandbox.workspace / f"{name}.py").write_text("import os\nos._exit(9)\n")
    assert sandbox.client.get("/healthz").json()["state"] == "idle"
    assert sandbox.run("print('é')").phase == "Succeeded"
    assert sandbox.process.poll() is None
