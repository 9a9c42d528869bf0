"""Why there is no pod to be had, for whoever waits for one. Pure functions of what is known of a pool."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mcp_exec_api.code_execution import Reason
from mcp_exec_operator.pods.cache import Pod
from mcp_exec_operator.pods.status import PodProblem, starting_problem

if TYPE_CHECKING:
    from mcp_exec_operator.pools.partition import Partition


def why_not(pool: "Partition") -> PodProblem:
    """Why no pod of it is to be had: the most telling of the reasons."""
    if pool.newest is None:
        return PodProblem(reason=Reason.POOL_NOT_FOUND, message=f"there is no pool {pool.name}")
    if problem := pool.invalid or pool.exposed or pool.starting_problem():
        return problem
    counts = pool.inventory.counts
    # what is on its way serves the first of those that wait; the others wait for another reason
    enough = 0 < counts.coming >= len(pool.waiters)
    if pool.refusal is not None and not enough:
        return pool.refusal
    if pool.spec is not None and counts.total >= pool.max_pods and not enough:
        message = f"the pool has {pool.mixture.counts.total} pods, of {pool.spec.max_pods} that it may have"
        return PodProblem(reason=Reason.POOL_AT_CAPACITY, message=message)
    if pool.failure is not None:
        return pool.failure
    kind = f"pod of variant {pool.variant}" if pool.variant else "pod"
    message = f"no {kind} is ready: {counts.coming} start, {counts.busy} are busy"
    return PodProblem(reason=Reason.POOL_UNAVAILABLE, message=message)


def starting_problem_of(pods: Iterable[Pod]) -> PodProblem | None:
    """What keeps the first of these from becoming ready, if anything does."""
    for pod in pods:
        if pod.newest is not None and (problem := starting_problem(pod.newest)) is not None:
            return problem
        if pod.warning:
            return PodProblem(reason=Reason.POD_FAILED, message=pod.warning)
    return None
