"""Resource limits of the runner, set once before the job and inherited by every process that the code starts."""

import contextlib
import mmap
import os
import resource
import threading

from mcp_exec_sandbox.protocol import RunnerLimits
from mcp_exec_sandbox.runner.limits.stacks import limit_stacks

OPEN_FILES = 1024
REPORT_BYTES = 16 * 1024 * 1024
"""Memory above the soft limit, used to report that memory ran out."""

ADDRESS_SLACK_BYTES = 512 * 1024 * 1024
"""Address space above the data limit, because mapped libraries use much address space and little memory."""

THREAD_STACK_BYTES = 2 * 1024 * 1024
NICENESS = 5
OOM_SCORE = "1000"
"""The highest: the kernel ends the code's processes first."""


def apply_limits(limits: RunnerLimits) -> None:
    """Set every limit, unless the process already has a lower one."""
    data, address = resource.RLIMIT_DATA, resource.RLIMIT_AS
    _set_limit(data, limits.memory_bytes, limits.memory_bytes + REPORT_BYTES)
    slack = ADDRESS_SLACK_BYTES if _limits_mappings(data, limits.memory_bytes) else _read_mapped_bytes()
    _set_limit(address, limits.memory_bytes + slack, limits.memory_bytes + slack + REPORT_BYTES)
    _set_limit(resource.RLIMIT_NPROC, limits.max_tasks, limits.max_tasks)
    _set_limit(resource.RLIMIT_FSIZE, limits.storage_bytes, limits.storage_bytes)
    _set_limit(resource.RLIMIT_CORE, 0, 0)
    _set_limit(resource.RLIMIT_NOFILE, OPEN_FILES, OPEN_FILES)
    # Threads of the default size (8 MiB of address space) would run out of memory before they run out of tasks.
    threading.stack_size(THREAD_STACK_BYTES)
    limit_stacks(limits.memory_bytes)
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
