"""The runner's own resource limits: set once, before the job, and inherited by all that the code starts."""

import contextlib
import mmap
import os
import resource
import threading

from mcp_exec_sandbox.protocol import RunnerLimits

OPEN_FILES = 1024
REPORT_BYTES = 16 * 1024 * 1024
"""Memory above the soft limit, used to tell that memory ran out."""

ADDRESS_SLACK_BYTES = 512 * 1024 * 1024
"""Address space above the data limit: mapped libraries take much of it and little memory."""

THREAD_STACK_BYTES = 2 * 1024 * 1024
NICENESS = 5


def apply(limits: RunnerLimits) -> None:
    """Set every limit; a lower one that stands already is kept."""
    data, address = resource.RLIMIT_DATA, resource.RLIMIT_AS
    _set(data, limits.memory_bytes, limits.memory_bytes + REPORT_BYTES)
    slack = ADDRESS_SLACK_BYTES if _bounds_mappings(data, limits.memory_bytes) else _mapped_bytes()
    _set(address, limits.memory_bytes + slack, limits.memory_bytes + slack + REPORT_BYTES)
    _set(resource.RLIMIT_NPROC, limits.max_tasks, limits.max_tasks)
    _set(resource.RLIMIT_FSIZE, limits.storage_bytes, limits.storage_bytes)
    _set(resource.RLIMIT_CORE, 0, 0)
    _set(resource.RLIMIT_NOFILE, OPEN_FILES, OPEN_FILES)
    # Threads of the default size (8 MiB of address space) would run out of memory before they run out of tasks.
    threading.stack_size(THREAD_STACK_BYTES)
    # The supervisor must get its turn, and must not be the one that the kernel kills when memory is short.
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def release_reserve() -> None:
    """Lift the soft memory limits to the hard ones, so that a failure for want of memory can be told."""
    for kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS):
        _, hard = resource.getrlimit(kind)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (hard, hard))


def peak_bytes() -> int:
    """The largest resident size that the runner has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _set(kind: int, soft: int, hard: int) -> None:
    _, ceiling = resource.getrlimit(kind)
    if ceiling != resource.RLIM_INFINITY:
        soft, hard = min(soft, ceiling), min(hard, ceiling)
    resource.setrlimit(kind, (soft, hard))


def _bounds_mappings(kind: int, limit: int) -> bool:
    """Whether the system counts private mappings under this limit (Linux does since 4.7, gVisor need not)."""
    try:
        mmap.mmap(-1, limit + mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError:
        return True
    return False


def _mapped_bytes() -> int:
    """Address space that the started interpreter takes already."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * mmap.PAGESIZE
