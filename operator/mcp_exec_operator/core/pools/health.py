"""How the pods of a pool start and run, and why none of them is available. No clock, no I/O."""

from collections import deque
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, Protocol

from mcp_exec_api.reasons.execution import Reason, ReasonTrait
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_operator.core.pods.pod import PodCounts
from mcp_exec_operator.core.pods.status import PodProblem

FAULTS: Final = frozenset(reason for reason in Reason if ReasonTrait.FAULT in reason.traits)
"""Reasons of runs that may be the pool's fault. The code's own errors and failures of nodes are not."""
_MAX_RUNS: Final = 1000
"""Newest runs that are stored."""
_LACKS_OF_ROOM: Final = frozenset({Reason.POOL_AT_CAPACITY, Reason.QUOTA_EXCEEDED, Reason.UNSCHEDULABLE})


@dataclass(kw_only=True, eq=False)
class PoolHealth:
    """Recorded starts and runs of a pool's pods. Times are seconds of one monotonic clock."""

    failures: int = 0
    """Consecutive pods that did not become ready."""
    _runs: deque[tuple[float, bool]] = field(default_factory=lambda: deque(maxlen=_MAX_RUNS))

    def record_start(self) -> None:
        """Record that a pod became ready."""
        self.failures = 0

    def record_failure(self) -> None:
        """Record that a pod did not become ready."""
        self.failures += 1

    def record_run(self, reason: Reason, *, now: float) -> None:
        """Record the end of a run."""
        self._runs.append((now, reason in FAULTS))

    def count_runs(self, *, since: float) -> tuple[int, int]:
        """Return the runs that ended since then, and those of them that ended by a fault."""
        faults = [fault for at, fault in self._runs if at >= since]
        return len(faults), sum(faults)


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


class SessionPodFinder(Protocol):
    """Knows which pods are kept for sessions."""

    def find_pods(self, pool: ObjectKey) -> SessionPods:
        """Return the pods of the pool of that namespace and name that sessions keep."""


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
