"""Number of processors that the code sees: those of the pod's limit instead of those of the node.

Pools of processes and threads are as large as that number. On a node with many cores they would exceed the limits.
"""

import functools
import os

from mcp_exec_sandbox.protocol import CPU_COUNT_VARIABLE


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
