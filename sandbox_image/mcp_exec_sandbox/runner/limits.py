"""Resource limits of the runner, set once before the job and inherited by every process that the code starts."""

import contextlib
import fcntl
import functools
import mmap
import os
import resource
import sys
import threading
import time

from mcp_exec_sandbox.protocol import CPU_COUNT_VARIABLE, RunnerLimits

OPEN_FILES = 1024
REPORT_BYTES = 16 * 1024 * 1024
"""Memory above the soft limit, used to report that memory ran out."""
ADDRESS_SLACK_BYTES = 512 * 1024 * 1024
"""Address space above the data limit, because mapped libraries use much address space and little memory."""
THREAD_STACK_BYTES = 2 * 1024 * 1024
NICENESS = 5
OOM_SCORE = "1000"
"""The highest: the kernel ends the code's processes first."""
CGROUP_FILES = ("/sys/fs/cgroup/pids.current", "/sys/fs/cgroup/pids/pids.current")
MANY_TASKS = 16
PAUSE_SECONDS = 0.05
CALL_BYTES = 1024
"""Memory of a call of a recursion: its frame and its entry in the traceback, with a few variables."""
MIB = 1024 * 1024


def apply_limits(limits: RunnerLimits) -> None:
    """Set every limit, unless the process already has a lower one."""
    data, address = resource.RLIMIT_DATA, resource.RLIMIT_AS
    _set_limit(data, limits.memory_bytes, limits.memory_bytes + REPORT_BYTES)
    slack = ADDRESS_SLACK_BYTES if _limits_mappings(data, limits.memory_bytes) else _read_mapped_bytes()
    _set_limit(address, limits.memory_bytes + slack, limits.memory_bytes + slack + REPORT_BYTES)
    # Threads of the default size (8 MiB of address space) would run out of memory before they run out of tasks.
    threading.stack_size(THREAD_STACK_BYTES)
    limit_stacks(limits.memory_bytes)
    limit_processes(limits)


def limit_processes(limits: RunnerLimits) -> None:
    """Set the limits of tasks, files and priority, which hold for any program."""
    _set_limit(resource.RLIMIT_NPROC, limits.max_tasks, limits.max_tasks)
    _set_limit(resource.RLIMIT_FSIZE, limits.storage_bytes, limits.storage_bytes)
    _set_limit(resource.RLIMIT_CORE, 0, 0)
    _set_limit(resource.RLIMIT_NOFILE, OPEN_FILES, OPEN_FILES)
    # The supervisor must get CPU time, and the kernel must not kill it if memory runs out.
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(OOM_SCORE)


def restore_limits() -> None:
    """Set the soft memory limits back below the hard ones, after a job of a session has used the reserve."""
    for kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS):
        soft, hard = resource.getrlimit(kind)
        if soft == hard != resource.RLIM_INFINITY:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(kind, (hard - REPORT_BYTES, hard))


def release_reserve() -> None:
    """Raise the soft memory limits to the hard ones, so that the runner can report that memory ran out."""
    for kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS):
        _, hard = resource.getrlimit(kind)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (hard, hard))


def read_peak_bytes() -> int:
    """Return the largest resident size of the runner so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _set_limit(kind: int, soft: int, hard: int) -> None:
    _, ceiling = resource.getrlimit(kind)
    if ceiling != resource.RLIM_INFINITY:
        soft, hard = min(soft, ceiling), min(hard, ceiling)
    resource.setrlimit(kind, (soft, hard))


def _limits_mappings(kind: int, limit: int) -> bool:
    """Return whether the system counts private mappings under this limit (Linux 4.7 does, gVisor may not)."""
    try:
        mmap.mmap(-1, limit + mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError:
        return True
    return False


def _read_mapped_bytes() -> int:
    """Return the address space that the started interpreter already uses."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * mmap.PAGESIZE


def limit_cpu_count() -> None:
    """Make the functions of `os` return the number in the environment, if it is less than theirs."""
    text = os.environ.get(CPU_COUNT_VARIABLE, "")
    # Python 3.13 reads the variable itself, for all but the affinity.
    available = max(os.cpu_count() or 1, len(os.sched_getaffinity(0)))
    if not text.isdecimal() or not 0 < int(text) < available:
        return
    number = int(text)
    os.sched_getaffinity = _bound_affinity(number)
    for name in ("cpu_count", "process_cpu_count"):
        if (original := getattr(os, name, None)) is not None:
            setattr(os, name, _return_number(original, number))


def _return_number(original, number: int):  # type: ignore[no-untyped-def]
    @functools.wraps(original)
    def count() -> int:
        return number

    return count


def _bound_affinity(number: int):  # type: ignore[no-untyped-def]
    original = os.sched_getaffinity

    @functools.wraps(original)
    def sched_getaffinity(pid: int, /) -> set[int]:
        return set(sorted(original(pid))[:number])

    return sched_getaffinity


class ForkLock:
    """Lock that this interpreter and its forked children have in common, and the count of their tasks."""

    def __init__(self) -> None:
        self._lock = -1
        self._count: int | None = None

    def open(self) -> None:
        """Take a new lock, which no other process has."""
        # The lock belongs to a process, not to the file: a child doesn't inherit it, and it ends with its holder.
        self._lock = os.memfd_create("forks", os.MFD_CLOEXEC)
        self._count = _open_first(CGROUP_FILES)

    def close(self) -> None:
        """Use no lock any more."""
        for descriptor in (self._lock, self._count):
            if descriptor is not None and descriptor >= 0:
                os.close(descriptor)
        self._lock, self._count = -1, None

    def acquire(self) -> None:
        """Wait for the lock, and longer if there are many tasks."""
        with contextlib.suppress(OSError, ValueError):
            fcntl.lockf(self._lock, fcntl.LOCK_EX)
            if self._count is not None and int(os.pread(self._count, 32, 0)) > MANY_TASKS:
                time.sleep(PAUSE_SECONDS)

    def release(self) -> None:
        """Let other processes fork."""
        with contextlib.suppress(OSError, ValueError):
            fcntl.lockf(self._lock, fcntl.LOCK_UN)


fork_lock = ForkLock()


def serialize_forks() -> None:
    """Make every fork of this interpreter and its forked children take a common lock."""
    fork_lock.open()
    os.register_at_fork(before=fork_lock.acquire, after_in_parent=fork_lock.release)


def _open_first(paths: tuple[str, ...]) -> int | None:
    for path in paths:
        with contextlib.suppress(OSError):
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return None


def limit_stacks(memory_bytes: int) -> None:
    """Bound what `sys.setrecursionlimit` and `threading.stack_size` set, in an interpreter with so much memory."""
    sys.setrecursionlimit = _bound_recursion(memory_bytes // CALL_BYTES)  # type: ignore[assignment]
    threading.stack_size = _bound_stack(memory_bytes // 2)


def explain_recursion(error: RecursionError) -> str:
    """Return the error's text, with the limit if it is the highest that the memory allows."""
    limit = sys.getrecursionlimit()
    # Calls of C code have a limit of their own in Python 3.13.
    if limit != getattr(sys.setrecursionlimit, "most", None) or not _has_calls(error, limit // 2):
        return str(error)
    return f"{error}: the memory of the sandbox allows {limit} calls"


def _has_calls(error: BaseException, number: int) -> bool:
    """Return whether the traceback of an error has at least so many calls."""
    entry = error.__traceback__
    while entry is not None and number > 0:
        entry, number = entry.tb_next, number - 1
    return number == 0


def _bound_recursion(most: int) -> object:
    original = sys.setrecursionlimit

    @functools.wraps(original)
    def setrecursionlimit(limit: int, /) -> None:
        original(min(limit, most) if isinstance(limit, int) else limit)

    setrecursionlimit.most = most  # type: ignore[attr-defined]
    return setrecursionlimit


def _bound_stack(most: int):  # type: ignore[no-untyped-def]
    original = threading.stack_size

    @functools.wraps(original)
    def stack_size(size: int = 0, /) -> int:
        if isinstance(size, int) and size > most:
            raise MemoryError(
                f"a stack of {size // MIB} MiB does not fit into memory: threading.stack_size takes at most"
                f" {most // MIB} MiB here"
            )
        return original(size)

    return stack_size
