"""How well the pods of a pool start and run: what a rollout between pools compares. No clock, no I/O."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_api.reasons.execution import Reason, ReasonTrait

FAULTS: Final = frozenset(reason for reason in Reason if ReasonTrait.FAULT in reason.traits)
"""Reasons of runs that may be the pool's fault. The code's own errors and failures of nodes are not."""
_MAX_RUNS: Final = 1000
"""Newest runs that are stored."""


@dataclass(kw_only=True, eq=False)
class PoolHealth:
    """Recorded starts and runs of a pool's pods. Times are seconds of one monotonic clock."""

    failures: int = 0
    """Consecutive pods that did not become ready."""
    last_failure: str = ""
    """Why the last of them did not."""
    _runs: deque[tuple[float, bool]] = field(default_factory=lambda: deque(maxlen=_MAX_RUNS))

    def record_start(self) -> None:
        """Record that a pod became ready."""
        self.failures, self.last_failure = 0, ""

    def record_failure(self, message: str) -> None:
        """Record that a pod did not become ready."""
        self.failures, self.last_failure = self.failures + 1, message

    def record_run(self, reason: Reason, *, now: float) -> None:
        """Record the end of a run."""
        self._runs.append((now, reason in FAULTS))

    def count_runs(self, *, since: float) -> tuple[int, int]:
        """Return the runs that ended since then, and those of them that ended by a fault."""
        faults = [fault for at, fault in self._runs if at >= since]
        return len(faults), sum(faults)
