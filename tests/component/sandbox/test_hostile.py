"""Code that attacks what holds it: the control channel, the supervisor, the end of its own run."""

import json
import os

import pytest

CHANNEL = "import os, signal, socket\nchannel = socket.socket(fileno=os.dup(3))\n"


def test_garbage_on_the_control_channel_is_ignored(sandbox):
    code = CHANNEL + (
        "lines = (b'\\n\\n', b'{', b'[1]\\n', b'\\xff\\xfe\\n', b'null\\n', b'{\"type\": []}\\n')\n"
        "for line in (*lines, b'[' * 100000 + b'\\n'):\n"
        "    channel.sendall(line)\n'fine'"
    )
    run = sandbox.run(code)
    assert (run.phase, run.result) == ("Succeeded", "fine")


def test_a_line_without_end_is_ignored(sandbox):
    run = sandbox.run(CHANNEL + "for _ in range(50):\n    channel.sendall(b'x' * 1_000_000)\n'fine'")
    assert (run.phase, run.result) == ("Succeeded", "fine")


def test_a_forged_end_ends_the_run_and_nothing_else(sandbox):
    code = CHANNEL + 'channel.sendall(b\'{"type": "done", "hasValue": true, "value": 5}\\n\')\nsignal.pause()'
    run = sandbox.run(code)
    assert (run.phase, run.result) == ("Succeeded", 5)
    assert sandbox.client.get("/healthz").json()["state"] == "finished"


@pytest.mark.parametrize(
    "message",
    [
        {"type": "done", "error": "text", "exitCode": "x", "limit": 5, "peakMemoryBytes": -1},
        {"type": "done", "error": {"type": 5, "message": ["x"], "line": -3, "traceback": None}},
        {"type": "done", "error": {"type": "T" * 5000, "message": "m" * 50000, "traceback": "t" * 50000}},
        {"type": "done", "exitCode": 10**400, "limit": "unknown"},
    ],
)
def test_a_forged_report_is_checked_and_bounded(sandbox, message):
    run = sandbox.run(CHANNEL + f"channel.sendall({json.dumps(message).encode()!r} + b'\\n')\nsignal.pause()")
    assert run.end["phase"] in ("Succeeded", "Failed")
    assert len(json.dumps(run.end)) < 30_000
    assert run.end["exitCode"] is None


def test_a_forged_result_is_held_to_its_bound(sandbox):
    code = (
        CHANNEL + 'channel.sendall(b\'{"type": "done", "hasValue": true, "value": "\' + b\'x\' * 100000 + b\'"}\\n\')\n'
    )
    run = sandbox.run(code + "signal.pause()", outputBytes=1000)
    assert run.result_truncated
    assert len(json.dumps(run.result)) <= 1000


def test_a_run_can_not_claim_that_it_was_in_time(sandbox):
    code = CHANNEL + (
        "try:\n    while True: pass\nexcept BaseException:\n"
        '    channel.sendall(b\'{"type": "done", "hasValue": true, "value": 5}\\n\')\n    signal.pause()\n'
    )
    run = sandbox.run(code, timeoutSeconds=0.2)
    assert (run.phase, run.reason, run.has_result) == ("TimedOut", "Timeout", False)


def test_lone_surrogates_do_no_harm(sandbox):
    run = sandbox.run("print('\\ud800')\n{'a\\udfff': '\\ud800'}")
    assert run.phase == "Succeeded"
    assert run.stdout == "\\ud800\n"
    assert run.result == {"a?": "?"}


def test_system_calls_that_name_the_supervisor_are_refused(sandbox):
    code = """
import fcntl, os, resource, signal
parent = os.getppid()
def is_refused(call, *arguments):
    try:
        call(*arguments)
    except PermissionError:
        return True
    return False
[
    is_refused(os.kill, parent, 0),
    is_refused(os.kill, parent, signal.SIGKILL),
    is_refused(signal.pidfd_send_signal, os.pidfd_open(os.getpid()), 0),
    is_refused(os.pidfd_open, parent),
    is_refused(resource.prlimit, parent, resource.RLIMIT_NOFILE, (3, 3)),
    is_refused(os.setpriority, os.PRIO_PROCESS, parent, 19),
    is_refused(os.sched_setaffinity, parent, {0}),
    is_refused(fcntl.fcntl, 0, fcntl.F_SETOWN, parent),
    is_refused(os.kill, os.getpid(), 0),
]
"""
    assert sandbox.run(code).result == [True, True, False, True, True, True, True, True, False]


def test_the_filter_holds_in_child_programs(sandbox):
    run = sandbox.run("import os, subprocess\nsubprocess.run(['sh', '-c', f'kill -9 {os.getppid()}']).returncode")
    assert run.result != 0


def test_the_supervisors_memory_and_environment_are_closed(sandbox):
    code = """
import os
outcome = {}
for name in ("environ", "mem", "maps"):
    try:
        with open(f"/proc/{os.getppid()}/{name}", "rb") as file:
            outcome[name] = repr(file.read(10))
    except PermissionError:
        outcome[name] = "refused"
outcome
"""
    assert sandbox.run(code).result == {"environ": "refused", "mem": "refused", "maps": "refused"}


def test_the_supervisor_ignores_signals_of_its_code_even_without_the_filter(make_sandbox):
    """As PID 1 of a namespace, where the kernel sends what it would send in a container."""
    user = () if os.getuid() == 0 else ("--user", "--map-current-user")
    sandbox = make_sandbox(wrapper=("unshare", *user, "--pid", "--fork", "--mount-proc", "--kill-child"))
    run = sandbox.run("import os\ntry:\n    os.kill(-1, 9)\nexcept OSError:\n    pass\nos.getppid()")
    assert (run.phase, run.result) == ("Succeeded", 1)
    assert sandbox.client.get("/healthz").json()["state"] == "finished"


@pytest.mark.parametrize("call", ["libc.unshare(0x10000000)", "libc.unshare(0x20000)", "libc.setns(0, 0)"])
def test_no_namespace_is_made_or_entered(sandbox, call):
    code = (
        f"import ctypes, errno\nlibc = ctypes.CDLL(None, use_errno=True)\n({call}, errno.errorcode[ctypes.get_errno()])"
    )
    assert sandbox.run(code).result == [-1, "EPERM"]


def test_threads_and_child_processes_still_work(sandbox):
    code = (
        "import subprocess, threading\n"
        "seen = []\n"
        "thread = threading.Thread(target=lambda: seen.append(1))\n"
        "thread.start()\n"
        "thread.join()\n"
        "(seen, subprocess.run(['echo', 'hi'], capture_output=True, text=True).stdout)"
    )
    assert sandbox.run(code).result == [[1], "hi\n"]
