"""System calls of Python code, refused and allowed ones, and what the interpreter inherits from its supervisor.

Only Python's code can make any system call, start programs, fork and read its own memory: Deno allows none of them. The
filter is the same in each language, and test_hostile.py shows that each process of the code has it.
"""

import hashlib

import pytest
from tests.component.sandbox.conftest import TOKEN


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


@pytest.mark.parametrize("call", ["libc.unshare(0x10000000)", "libc.unshare(0x20000)", "libc.setns(0, 0)"])
def test_no_namespace_is_made_or_entered(sandbox, call):
    code = (
        f"import ctypes, errno\nlibc = ctypes.CDLL(None, use_errno=True)\n({call}, errno.errorcode[ctypes.get_errno()])"
    )
    assert sandbox.run(code).result == [-1, "EPERM"]


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
