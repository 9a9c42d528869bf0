"""How many pods to make or to end, from how many there are. Pure: all that is decided here is in the arguments."""

from typing import Final

from mcp_exec_operator.inventory import Counts

MAX_COMING: Final = 10
"""Pods of a pool that may be on their way at a time, where its warm ones are not more: a crowd that waits for cold
starts must not flood the scheduler with pods that no node has room for."""


def pods_to_create(*, warm_min: int, max_pods: int, cold_starts: int, counts: Counts) -> int:
    """Pods to ask for: what is short of the warm ones or of those that wait, as far as the pool may grow
    and no faster than pods come up.

    `cold_starts` are executions that wait for a pod to be made for them. Pods that start for them come first: what
    they take from the warm ones is made up for once they have it.
    """
    short = max(warm_min, cold_starts) - counts.warm - counts.coming
    return max(0, min(short, max_pods - counts.total, max(warm_min, MAX_COMING) - counts.coming))


def pods_to_delete(*, warm_min: int, waiting: int, counts: Counts) -> int:
    """Idle pods that are too many. Pods that still start are not ended while somebody waits for one."""
    return max(0, counts.warm + counts.coming - warm_min - waiting)
