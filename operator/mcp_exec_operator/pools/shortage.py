"""Why no pod of a partition is available. Pure functions."""

from collections.abc import Iterable

from mcp_exec_api.reasons import Reason
from mcp_exec_operator.pods.cache import Pod, PodCounts
from mcp_exec_operator.pods.status import PodProblem, starting_problem


def explain_shortage(
    *,
    counts: PodCounts,
    waiting: int,
    total_pods: int,
    max_pods: int | None,
    starting: PodProblem | None,
    refusal: PodProblem | None,
    failure: PodProblem | None,
    variant: str = "",
) -> PodProblem:
    """Return the most specific reason why no pod is available.

    `counts` are the partition's pods, `total_pods` all pods of the pool. `max_pods` is None for a pool without a spec.
    """
    if starting is not None:
        return starting
    # starting pods serve the first waiting executions; only the others wait for another reason
    enough = 0 < counts.coming >= waiting
    if refusal is not None and not enough:
        return refusal
    if max_pods is not None and total_pods >= max_pods and not enough:
        message = f"the pool has {total_pods} of at most {max_pods} pods"
        return PodProblem(reason=Reason.POOL_AT_CAPACITY, message=message)
    if failure is not None:
        return failure
    kind = f"pod of variant {variant}" if variant else "pod"
    message = f"no {kind} is warm: {counts.coming} are starting, {counts.busy} are busy"
    return PodProblem(reason=Reason.POOL_UNAVAILABLE, message=message)


def first_starting_problem(pods: Iterable[Pod]) -> PodProblem | None:
    """Return why the first of these pods that has a problem does not become ready, or None."""
    for pod in pods:
        if pod.newest is not None and (problem := starting_problem(pod.newest)) is not None:
            return problem
        if pod.warning:
            return PodProblem(reason=Reason.POD_FAILED, message=pod.warning)
    return None
