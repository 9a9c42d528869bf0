"""Which variants of a pool get callers: one that fails where its siblings don't is taken out. No clock, no I/O."""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_api.code_execution import Reason

FAILURES: Final = 3
"""Pods in a row that did not become ready, after which a variant goes, if a sibling's do."""
WINDOW_SECONDS: Final = 300.0
"""How long a run counts."""
LEAST_RUNS: Final = 10
"""Runs in the window that a share of faults needs to mean anything, of the variant and of its siblings together."""
LEAST_SHARE: Final = 0.2
"""The share of runs that must have ended by a fault."""
TIMES: Final = 5.0
"""How many times the siblings' share it must be."""
FAULTS: Final = frozenset(
    {
        Reason.RUNNER_DIED,
        Reason.OUT_OF_MEMORY,
        Reason.PROCESS_LIMIT,
        Reason.SANDBOX_LOST,
        Reason.SUPERVISOR_DIED,
        Reason.STREAM_BROKEN,
    }
)
"""Ends of runs that may be the variant's fault: neither the code's own errors, nor what a node did."""
_MOST_RUNS: Final = 1000
"""Runs of a variant that are remembered."""


@dataclass(frozen=True, kw_only=True)
class VariantHealthSnapshot:
    """How a variant does at a moment."""

    failures: int = 0
    """Its last pods, in a row, that did not become ready."""
    comes_up: bool = False
    """Whether a pod of it became ready since."""
    runs: int = 0
    """Runs in the window."""
    faults: int = 0
    """Those of them that ended by a fault."""

    @property
    def share(self) -> float:
        """The share of runs that ended by a fault."""
        return self.faults / self.runs if self.runs else 0.0


@dataclass(frozen=True, kw_only=True)
class Ejection:
    """That a variant was taken out of rotation, and why."""

    reason: str
    """A word for programs."""
    message: str
    """A sentence for people."""
    template: str = ""
    """The hash of its pods then: with another it is tried again."""


@dataclass(kw_only=True, eq=False)
class VariantHealth:
    """What is remembered of a variant. Times are of one monotonic clock, in seconds."""

    failures: int = 0
    last_failure: str = ""
    comes_up: bool = False
    _runs: deque[tuple[float, bool]] = field(default_factory=lambda: deque(maxlen=_MOST_RUNS))

    def started(self) -> None:
        """A pod became ready."""
        self.failures, self.last_failure, self.comes_up = 0, "", True

    def failed(self, message: str) -> None:
        """A pod did not become ready."""
        self.failures, self.last_failure, self.comes_up = self.failures + 1, message, False

    def ran(self, *, fault: bool, now: float) -> None:
        """A run ended."""
        self._runs.append((now, fault))

    def health(self, now: float) -> VariantHealthSnapshot:
        """How it does now."""
        while self._runs and self._runs[0][0] + WINDOW_SECONDS < now:
            self._runs.popleft()
        faults = sum(fault for _, fault in self._runs)
        return VariantHealthSnapshot(
            failures=self.failures, comes_up=self.comes_up, runs=len(self._runs), faults=faults
        )


def detect_outlier(healths: Mapping[str, VariantHealthSnapshot]) -> tuple[str, str] | None:
    """Of the variants in rotation the one that goes next, and the reason; None where all may stay.

    Whoever goes leaves a sibling behind that does better, so that the last one never goes.
    """
    for name in sorted(healths, key=lambda each: -healths[each].failures):
        siblings = [health for each, health in healths.items() if each != name]
        if healths[name].failures >= FAILURES and any(each.comes_up and not each.failures for each in siblings):
            return name, "StartFailures"
    for name in sorted(healths, key=lambda each: -healths[each].share):
        if _is_far_above(healths[name], [health for each, health in healths.items() if each != name]):
            return name, "ErrorRate"
    return None


def select_rotation(
    weights: Mapping[str, int], out: Collection[str], healths: Mapping[str, VariantHealthSnapshot]
) -> tuple[str, ...]:
    """The variants that get callers: those that weigh something and are not out, or else the least bad alone."""
    weighing = [name for name, weight in weights.items() if weight > 0]
    if within := [name for name in weighing if name not in out]:
        return tuple(within)
    # of equals the first of the spec stays
    return tuple(sorted(weighing, key=lambda name: (healths[name].failures, healths[name].share))[:1])


def _is_far_above(health: VariantHealthSnapshot, siblings: Collection[VariantHealthSnapshot]) -> bool:
    runs = sum(each.runs for each in siblings)
    if health.runs < LEAST_RUNS or runs < LEAST_RUNS:
        return False
    others = sum(each.faults for each in siblings) / runs
    return health.share >= max(LEAST_SHARE, TIMES * others)
