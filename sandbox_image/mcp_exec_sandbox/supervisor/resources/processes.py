"""Processes of the sandbox: list, count, stop, kill and reap them."""

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

READ_BYTES = 64 * 1024
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_FIELDS = 22
"""Fields of /proc/PID/stat after the name that are used: state, parent, ..., CPU times (11-14), ..., threads (17), ...,
resident pages (21)."""
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_ENDED = (b"Z", b"X")
_STOPPED = (b"T", b"t")
_FIRST_DELAY_SECONDS = 0.001
_LAST_DELAY_SECONDS = 0.02
_MAX_WAITS = 500
"""Waits of a millisecond for the processes to stop."""
CGROUP_FILES = ("pids.current", "pids/pids.current")


class ProcFile:
    """A file whose contents the kernel generates at each read. A missing file reads as empty."""

    def __init__(self, path: Path) -> None:
        self._descriptor: int | None = None
        with contextlib.suppress(OSError):
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read_text(self) -> str:
        """Return the current contents."""
        if self._descriptor is None:
            return ""
        with contextlib.suppress(OSError):
            return os.pread(self._descriptor, READ_BYTES, 0).decode("ascii", "replace")
        return ""

    def read_number(self) -> int | None:
        """Return the number that is the file's whole contents, or None if it has other contents."""
        text = self.read_text().strip()
        return int(text) if text.isdigit() else None

    def read_field(self, name: str) -> int:
        """Return the number after `name` at the beginning of a line, or 0 if no line begins with `name`."""
        for line in self.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name and value.split()[:1] and value.split()[0].isdigit():
                return int(value.split()[0])
        return 0

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process as /proc shows it."""

    pid: int
    parent: int
    threads: int
    resident_bytes: int
    cpu_seconds: float = 0.0
    """CPU time of the process and of its ended children."""
    is_running: bool = True
    """Whether it may run code. A process without a main thread may: nothing shows whether its other threads do."""
    has_main_thread: bool = True
    """Whether the main thread lives, the only one that /proc/PID describes."""


def read_process(pid: int) -> Process | None:
    """Return the process, or None if it has ended: a process that nobody has reaped yet counts as ended."""
    fields = _read_stat(pid)
    return None if not fields or _is_dead(fields) else _parse_process(pid, fields)


def _parse_process(pid: int, fields: list[bytes]) -> Process:
    return Process(
        pid=pid,
        parent=int(fields[1]),
        threads=int(fields[17]),
        resident_bytes=int(fields[21]) * PAGE_BYTES,
        cpu_seconds=sum(map(int, fields[11:15])) / _TICKS_PER_SECOND,
        is_running=fields[0] not in _STOPPED,
        has_main_thread=fields[0] not in _ENDED,
    )


def _read_stat(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat after the name, or none if they can't be read."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return []
    return fields if len(fields) >= _FIELDS else []


def _is_dead(fields: list[bytes]) -> bool:
    """Return whether no thread is left. The state is the main thread's; others may go on after it has ended."""
    return fields[0] in _ENDED and int(fields[17]) <= 1


def list_descendants(ancestor: int) -> list[Process]:
    """Return all living processes below `ancestor`; for PID 1 these are all processes of the container."""
    return [_parse_process(pid, fields) for pid, fields in _read_stats_below(ancestor) if not _is_dead(fields)]


def _read_stats_below(ancestor: int) -> list[tuple[int, list[bytes]]]:
    children: dict[int, list[tuple[int, list[bytes]]]] = {}
    for pid in _list_numbers():
        if fields := _read_stat(pid):
            children.setdefault(int(fields[1]), []).append((pid, fields))
    below: list[tuple[int, list[bytes]]] = []
    queue = [ancestor]
    while queue:
        generation = children.pop(queue.pop(), [])
        below.extend(generation)
        queue.extend(pid for pid, _ in generation)
    return below


def find_folder(process: Process) -> str | None:
    """Return the folder of /proc with a process's memory and open files.

    If the main thread has ended, this is the folder of another thread. gVisor has none then: it returns None.
    """
    folder = f"/proc/{process.pid}"
    if process.has_main_thread:
        return folder
    with contextlib.suppress(OSError):
        for name in os.listdir(f"{folder}/task"):
            if name != str(process.pid):
                return f"{folder}/task/{name}"
    return None


def stop_descendants() -> None:
    """Stop every process below this one with SIGSTOP, which costs far less CPU than to kill them."""
    _signal_descendants(signal.SIGSTOP)


async def wait_until_stopped() -> None:
    """Return once no process below this one runs code any more, after `stop_descendants` or `kill_descendants`.

    A signal takes effect a moment after its call. Code that the kernel does not stop in time is not waited for. A
    process without a main thread is killed, because nothing shows whether its threads are stopped.
    """
    for turn in range(_MAX_WAITS):
        running = [process for process in list_descendants(os.getpid()) if process.is_running]
        if not running:
            return
        hidden = [process.pid for process in running if not process.has_main_thread]
        for pid in hidden:
            kill_process(pid, signal.SIGKILL)
        if hidden:
            # The end of a process may make the kernel wake others.
            stop_descendants()
        await asyncio.sleep(0.0001 if turn < 3 else 0.001)


def kill_descendants(*, spare: Collection[int] = ()) -> None:
    """Kill every process below this one, but those to `spare`. Then stop the others first, so that none escapes."""
    if not spare:
        _signal_descendants(signal.SIGKILL)
        return
    for pid in _list_below():
        if pid not in spare:
            kill_process(pid, signal.SIGKILL)


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
    """Return whether the kernel has a process below this one, but those to `spare`.

    No state proves the end of a process: it counts until its number is gone. Only a dead child of a process to `spare`
    keeps its number, until its parent goes on and waits for it.
    """
    return any(pid not in spare and not _is_dead_child(pid, spare) for pid in _list_below())


def _is_dead_child(pid: int, parents: Collection[int]) -> bool:
    fields = _read_stat(pid)
    return bool(fields) and _is_dead(fields) and int(fields[1]) in parents


def _list_below() -> list[int]:
    """Return the numbers of all processes below this one, also of dead ones that nobody has reaped."""
    if os.getpid() != 1:
        return [pid for pid, _ in _read_stats_below(os.getpid())]
    # All processes are below PID 1. It reads no file of theirs: files of /proc are slow in gVisor.
    return [pid for pid in _list_numbers() if pid != 1]


def kill_process(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may be gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def interrupt_main_thread(pid: int, numbers: Sequence[signal.Signals]) -> None:
    """Send signals to the first thread of a process, which may be gone.

    The kernel gives a signal to a process to any of its threads if the first has one that it has not handled yet. Then
    a lock that the first thread waits for would not be interrupted.
    """
    libc = ctypes.CDLL(None)
    for number in numbers:
        libc.tgkill(pid, pid, int(number))


def _signal_descendants(number: signal.Signals) -> None:
    """Send a signal to every process below this one.

    For PID 1 one system call reaches all processes at once, so no fork escapes. Otherwise (tests, a shared process
    namespace) each descendant gets a signal of its own.
    """
    if os.getpid() == 1:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(-1, number)
        return
    for pid in _list_below():
        kill_process(pid, number)


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


def _list_numbers() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


class TaskCounter:
    """Counts the tasks of the container without the supervisor's one.

    The container's cgroup gives the number in one cheap read, which matters if a fork bomb leaves the supervisor
    little CPU time. PID 1 can rely on the cgroup, which has only the container's processes; others walk /proc.
    """

    def __init__(self, *, supervisor: int, cgroup_root: Path) -> None:
        self._supervisor = supervisor
        self._file: ProcFile | None = None
        if supervisor == 1:
            files = [ProcFile(cgroup_root / name) for name in CGROUP_FILES]
            self._file = next((file for file in files if file.read_number() is not None), None)

    def count(self, *, without: Collection[int] = ()) -> int:
        """Return the number of processes and threads of the code, its interpreter included.

        `without` are other processes of the sandbox itself, with one thread each.
        """
        if self._file is not None and (number := self._file.read_number()) is not None:
            return number - 1 - len(without)
        return sum(process.threads for process in list_descendants(self._supervisor) if process.pid not in without)
