"""Code that attacks what holds it: the control channel, the supervisor, the end of its own run."""

import hashlib
import json
import os

import pytest
from tests.component.sandbox.conftest import TOKEN

GRACE_MS = 700
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


@pytest.mark.parametrize(
    "value",
    [b"[" * 983 + b"]" * 983, b'{"a":' * 983 + b"1" + b"}" * 983, b"1e999", b'"\\ud800"', b"9" * 4000, b"NaN"],
    ids=["nested lists", "nested objects", "an infinite number", "a lone surrogate", "a long number", "no number"],
)
def test_no_forged_report_keeps_a_run_from_its_end(sandbox, value):
    """If the supervisor can't read the report, the run goes on to its time-out."""
    report = b'{"type": "done", "hasValue": true, "value": %s}\n' % value
    run = sandbox.run(CHANNEL + f"channel.sendall({report!r})\nsignal.pause()", timeoutSeconds=0.5)
    assert run.phase in ("Succeeded", "TimedOut")
    assert [event["type"] for event in run.events].count("end") == 1
    assert run.end["type"] == "end"
    assert sandbox.client.get("/healthz").json()["state"] == "finished"


FLOODS = {
    "empty lines": "b'\\n' * 65536",
    "short objects": """b'{"type":1}\\n' * 20000""",
    "deep lists": "(b'[' * 200_000 + b'\\n')",
    "tool events that claim output": """b'{"type":"tool_call","id":"","tool":"","written":[999999999,9]}\\n' * 1000""",
    "one line": "b'x' * 65536",
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_run_that_floods_the_control_channel_ends_within_a_second_of_its_time(sandbox, flood):
    """Three processes flood the channel and the output while the code ignores its interruption."""
    code = CHANNEL + (
        "channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)\n"
        f"data = {FLOODS[flood]}\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "if os.fork() == 0:\n    while True: os.write(1, b'\\xff' * 65536)\n"
        "os.fork()\n"
        "while True: channel.sendall(data)\n"
    )
    run = sandbox.run(code, timeoutSeconds=0.3)
    assert run.reason in ("Timeout", "OutputLimit")
    assert run.end["runMs"] < 300 + GRACE_MS + 1000
    assert [event["type"] for event in run.events].count("end") == 1
    assert sandbox.client.get("/healthz").json()["state"] == "finished"


def test_calls_that_direct_signals_at_others_or_reach_into_them_are_refused(sandbox):
    """PTRACE_TRACEME would stop the runner at each of the supervisor's signals."""
    code = """
import ctypes, errno, fcntl, os, platform, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
mine, other = socket.socketpair()
numbers = {"x86_64": (323, 312), "aarch64": (282, 272)}[platform.machine()]
def attempt(call, *arguments):
    try:
        return "open" if call(*arguments) != -1 else errno.errorcode[ctypes.get_errno()]
    except OSError as error:
        return errno.errorcode[error.errno]
{
    "traceme": attempt(libc.ptrace, 0, 0, 0, 0),
    "setown": attempt(fcntl.fcntl, mine, fcntl.F_SETOWN, os.getpid()),
    "setown of a group": attempt(fcntl.fcntl, mine, fcntl.F_SETOWN, -os.getppid()),
    "setown_ex": attempt(fcntl.fcntl, mine, 15, struct.pack("ii", 1, os.getppid())),
    "setsig": attempt(fcntl.fcntl, mine, 10, 9),
    "async": attempt(fcntl.fcntl, mine, fcntl.F_SETFL, os.O_ASYNC),
    "fiosetown": attempt(fcntl.ioctl, mine, 0x8901, struct.pack("i", os.getppid())),
    "siocspgrp": attempt(fcntl.ioctl, mine, 0x8902, struct.pack("i", os.getppid())),
    "fioasync": attempt(fcntl.ioctl, mine, 0x5452, struct.pack("i", 1)),
    "tiocsti": attempt(fcntl.ioctl, os.openpty()[1], 0x5412, b"x"),
    "io_uring": attempt(libc.syscall, 425, 8, ctypes.create_string_buffer(120)),
    "pidfd_getfd": attempt(libc.syscall, 438, 0, 0, 0),
    "userfaultfd": attempt(libc.syscall, numbers[0], 1),
    "kcmp": attempt(libc.syscall, numbers[1], os.getpid(), os.getppid(), 0, 0, 0),
    "priority of the user": attempt(libc.setpriority, 2, 0, 19),
}
"""
    assert set(sandbox.run(code).result.values()) == {"EPERM"}


def test_subprocesses_pools_loops_terminals_and_selectors_still_work(sandbox):
    code = """
import asyncio, concurrent.futures, fcntl, multiprocessing, os, pty, select, signal, socket, subprocess
async def program():
    process = await asyncio.create_subprocess_exec("echo", "one", stdout=subprocess.PIPE)
    return (await process.communicate())[0].decode()
with multiprocessing.get_context("fork").Pool(2) as pool:
    squares = pool.map(abs, [-1, 2])
pid, terminal = pty.fork()
if pid == 0:
    os.execvp("echo", ["echo", "two"])
shown = os.read(terminal, 100)
os.waitpid(pid, 0)
left, right = socket.socketpair()
left.send(b"x")
os.set_blocking(right.fileno(), False)
signal.signal(signal.SIGUSR2, lambda *_: None)
os.kill(os.getpid(), signal.SIGUSR2)
[await program(), squares, shown.decode().strip(), select.select([right], [], [], 1)[0] == [right], os.getpgid(0) > 0]
"""
    run = sandbox.run(code)
    assert run.result == ["one\n", [1, 2], "two", True, True], run.error


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
    assert run.result == {"a\\udfff": "\\ud800"}


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
    assert sandbox.run(code).result == [True, True, True, True, True, True, True, True, False]


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


SEARCH = """
import hashlib, re
from pathlib import Path
found, read = [], 0
with open("/proc/self/mem", "rb", buffering=0) as memory:
    for line in Path("/proc/self/maps").read_text().splitlines():
        ends, rights, *rest = line.split()
        if rights[0] != "r" or "[v" in line:
            continue
        start, end = (int(place, 16) for place in ends.split("-"))
        while start < end:
            memory.seek(start)
            try:
                part = memory.read(min(end - start, 1 << 20))
            except OSError:
                break
            read += len(part)
            start += len(part)
            digits = re.findall(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])", part)
            found += [hashlib.sha256(each).hexdigest() for each in digits]
del part
own = Path("/proc/self/environ").read_bytes()
[read > 5_000_000, context["wanted"] in found, context["control"] in found, b"MCP_EXEC_TOKEN" in own]
"""
"""Searches the interpreter's memory for texts with these digests, the only thing that it is given."""


def test_the_interpreter_has_not_got_what_the_supervisor_proves_itself_with(sandbox):
    secret = hashlib.sha256(TOKEN.encode()).hexdigest()
    control = "0123456789abcdef" * 4
    digests = {
        name: hashlib.sha256(text.encode()).hexdigest() for name, text in (("wanted", secret), ("control", control))
    }
    run = sandbox.run(f"held = b'{control}'\n" + SEARCH, context=digests)
    assert run.result == [True, False, True, False], run.error


def test_the_interpreter_has_no_descriptor_of_the_supervisor(sandbox):
    run = sandbox.run(
        "import os\n"
        "kinds = [os.readlink(f'/proc/self/fd/{name}').split(':')[0] for name in os.listdir('/proc/self/fd')"
        " if os.path.exists(f'/proc/self/fd/{name}')]\nkinds"
    )
    # the control channel, and the event loop's two to wake itself
    assert run.result.count("socket") == 1 + 2, run.result
