"""Why no pod of a pool is available. Pure functions."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from mcp_exec_api.reasons.execution import Reason
from mcp_exec_operator.pods.cache import Pod, PodCounts
from mcp_exec_operator.pods.status import PodProblem, starting_problem

_LACKS_OF_ROOM: Final = frozenset({Reason.POOL_AT_CAPACITY, Reason.QUOTA_EXCEEDED, Reason.UNSCHEDULABLE})


@dataclass(frozen=True, kw_only=True)
class SessionPods:
    """Pods of a pool that are kept for sessions."""

    kept: int = 0
    idle: int = 0
    """Those whose session runs nothing."""
    idle_until: datetime | None = None
    """When the first of them ends if nothing uses it."""

    def explain(self, problem: PodProblem) -> PodProblem:
        """Return a problem with these pods in its message, if they take room that others lack."""
        if not self.idle or problem.reason not in _LACKS_OF_ROOM:
            return problem
        pods = "1 pod is kept for an idle session" if self.idle == 1 else f"{self.idle} pods are kept for idle sessions"
        first = "" if self.idle == 1 else ", the first"
        until = f"{first} until {self.idle_until.astimezone(UTC):%H:%M:%S} UTC" if self.idle_until is not None else ""
        return replace(problem, message=f"{problem.message}; {pods}{until}")


def explain_shortage(
    *,
    counts: PodCounts,
    waiting: int,
    max_pods: int | None,
    starting: PodProblem | None,
    refusal: PodProblem | None,
    failure: PodProblem | None,
) -> PodProblem:
    """Return the most specific reason why no pod is available.

    `max_pods` is None for a pool without a spec.
    """
    if starting is not None:
        return starting
    # starting pods serve the first waiting executions; only the others wait for another reason
    enough = 0 < counts.coming >= waiting
    if refusal is not None and not enough:
        return refusal
    if max_pods is not None and counts.total >= max_pods and not enough:
        message = f"the pool has {counts.total} of at most {max_pods} pods"
        return PodProblem(reason=Reason.POOL_AT_CAPACITY, message=message)
    if failure is not None:
        return failure
    message = f"no pod is warm: {counts.coming} are starting, {counts.busy} are busy"
    return PodProblem(reason=Reason.POOL_UNAVAILABLE, message=message)


def first_starting_problem(pods: Iterable[Pod]) -> PodProblem | None:
    """Return why the first of these pods that has a problem does not become ready, or None."""
    for pod in pods:
        if pod.newest is not None and (problem := starting_problem(pod.newest)) is not None:
            return problem
        if pod.warning:
            return PodProblem(reason=Reason.POD_FAILED, message=pod.warning)
    return None
