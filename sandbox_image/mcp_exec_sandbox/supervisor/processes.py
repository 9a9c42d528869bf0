"""The processes of the sandbox: find them, count them, kill them."""

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process as /proc tells it."""

    pid: int
    parent: int
    threads: int
    resident_bytes: int


def descendants(ancestor: int) -> list[Process]:
    """All living processes below `ancestor`; as PID 1 these are all processes of the container."""
    children: dict[int, list[Process]] = {}
    for process in _all():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    queue = [ancestor]
    while queue:
        below = children.pop(queue.pop(), [])
        found.extend(below)
        queue.extend(process.pid for process in below)
    return found


def stop_descendants() -> None:
    """Let no process below this one run any further. Costs far less than to end them."""
    _signal_descendants(signal.SIGSTOP)


def kill_descendants() -> None:
    """End every process below this one."""
    _signal_descendants(signal.SIGKILL)


def _signal_descendants(number: signal.Signals) -> None:
    """Send a signal to every process below this one.

    As PID 1 one call reaches all at once, so that no fork slips through; elsewhere (tests, a shared process
    namespace) only descendants are touched.
    """
    if os.getpid() == 1:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(-1, number)
        return
    for process in descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, number)


def reap() -> Iterator[tuple[int, int]]:
    """Collect ended children: pairs of pid and exit code (negative: the signal that ended it)."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, os.waitstatus_to_exitcode(status)


def _all() -> Iterator[Process]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (process := _read(int(name))) is not None:
            yield process


def _read(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) < 22 or fields[0] in (b"Z", b"X"):
        return None
    return Process(pid=pid, parent=int(fields[1]), threads=int(fields[17]), resident_bytes=int(fields[21]) * PAGE_BYTES)
