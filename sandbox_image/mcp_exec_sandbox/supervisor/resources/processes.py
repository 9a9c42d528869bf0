"""Processes of the sandbox: list, stop, kill and reap them."""

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process as /proc shows it."""

    pid: int
    parent: int
    threads: int
    resident_bytes: int


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


def kill_descendants() -> None:
    """Kill every process below this one."""
    _signal_descendants(signal.SIGKILL)


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
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, number)


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
        if name.isdigit() and (process := _read_process(int(name))) is not None:
            yield process


def _read_process(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) < 22 or fields[0] in (b"Z", b"X"):
        return None
    return Process(pid=pid, parent=int(fields[1]), threads=int(fields[17]), resident_bytes=int(fields[21]) * PAGE_BYTES)
