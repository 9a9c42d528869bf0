"""Processes of the sandbox: list, stop, kill and reap them."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Collection, Iterator
from dataclasses import dataclass

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_FIRST_DELAY_SECONDS = 0.001
_LAST_DELAY_SECONDS = 0.02


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process as /proc shows it."""

    pid: int
    parent: int
    threads: int
    resident_bytes: int
    is_running: bool = True
    """Whether it is neither stopped nor dead."""


def read_process(pid: int) -> Process | None:
    """Return the process, or None if it has ended: a process that nobody has reaped yet counts as ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) < 22 or fields[0] in (b"Z", b"X"):
        return None
    return Process(
        pid=pid,
        parent=int(fields[1]),
        threads=int(fields[17]),
        resident_bytes=int(fields[21]) * PAGE_BYTES,
        is_running=fields[0] not in (b"T", b"t"),
    )


def list_descendants(ancestor: int) -> list[Process]:
    """Return all living processes below `ancestor`; for PID 1 these are all processes of the container."""
    children: dict[int, list[Process]] = {}
    for process in _list_processes():
        children.setdefault(process.parent, []).append(process)
    descendants: list[Process] = []
    queue = [ancestor]
    while queue:
        generation = children.pop(queue.pop(), [])
        descendants.extend(generation)
        queue.extend(process.pid for process in generation)
    return descendants


def stop_descendants() -> None:
    """Stop every process below this one with SIGSTOP, which costs far less CPU than to kill them."""
    _signal_descendants(signal.SIGSTOP)


async def wait_until_stopped(seconds: float = 0.5) -> None:
    """Return once no process below this one runs code any more, after `stop_descendants` or `kill_descendants`.

    A signal takes effect a moment after its call. Code that the kernel does not stop in time is not waited for.
    """
    for turn in range(round(seconds / 0.001)):
        if not any(process.is_running for process in list_descendants(os.getpid())):
            return
        await asyncio.sleep(0.0001 if turn < 3 else 0.001)


def kill_descendants(*, spare: Collection[int] = ()) -> None:
    """Kill every process below this one, but those to `spare`. Then stop the others first, so that none escapes."""
    if not spare:
        _signal_descendants(signal.SIGKILL)
        return
    for process in list_descendants(os.getpid()):
        if process.pid not in spare:
            kill_process(process.pid, signal.SIGKILL)


async def end_descendants(*, spare: Collection[int], seconds: float) -> bool:
    """Kill every process below this one, but those to `spare`, until none is left. Return False if some still are.

    All processes are stopped in the meantime. gVisor may miss one that is just being forked, which the next turn finds.
    """
    loop = asyncio.get_running_loop()
    deadline, delay = loop.time() + seconds, _FIRST_DELAY_SECONDS
    while _has_descendants(spare):
        if loop.time() > deadline:
            return False
        stop_descendants()
        kill_descendants(spare=spare)
        await asyncio.sleep(delay)
        delay = min(2 * delay, _LAST_DELAY_SECONDS)
    return True


def _has_descendants(spare: Collection[int]) -> bool:
    """Return whether a living process below this one is left, but those to `spare`."""
    if os.getpid() != 1:
        return any(process.pid not in spare for process in list_descendants(os.getpid()))
    # All processes are below PID 1. It reads no file of those that it knows: files of /proc are slow in gVisor.
    others = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return any(read_process(pid) is not None for pid in others if pid != 1 and pid not in spare)


def kill_process(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may be gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _signal_descendants(number: signal.Signals) -> None:
    """Send a signal to every process below this one.

    For PID 1 one system call reaches all processes at once, so no fork escapes. Otherwise (tests, a shared process
    namespace) each descendant gets a signal of its own.
    """
    if os.getpid() == 1:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(-1, number)
        return
    for process in list_descendants(os.getpid()):
        kill_process(process.pid, number)


def reap_children() -> Iterator[tuple[int, int]]:
    """Collect children that have ended and yield their pid and exit code (negative: the signal that ended it)."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            yield pid, os.waitstatus_to_exitcode(status)


def _list_processes() -> Iterator[Process]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (process := read_process(int(name))) is not None:
            yield process
