"""Outlier detection for the variants of a pool: a variant that fails while its siblings do not is ejected.

Pure: no clock, no I/O. Times are seconds of one monotonic clock.
"""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_api.reasons.execution import Reason, ReasonTrait

MAX_START_FAILURES: Final = 3
"""Consecutive pods that did not become ready after which a variant is ejected, if a sibling's pods do."""
WINDOW_SECONDS: Final = 300.0
"""How long a run counts."""
MIN_RUNS: Final = 10
"""Runs in the window that an error rate needs to be significant, of the variant and of its siblings together."""
MIN_ERROR_RATE: Final = 0.2
"""Error rate below which no variant is ejected."""
ERROR_RATE_FACTOR: Final = 5.0
"""How many times the siblings' error rate a variant's must be."""
FAULTS: Final = frozenset(reason for reason in Reason if ReasonTrait.VARIANT in reason.traits)
"""Reasons of runs that may be the variant's fault. The code's own errors and failures of nodes are not."""
_MAX_RUNS: Final = 1000
"""Runs of a variant that are stored."""


@dataclass(frozen=True, kw_only=True)
class VariantHealthSnapshot:
    """Health of a variant at a moment."""

    failures: int = 0
    """Consecutive pods that did not become ready."""
    comes_up: bool = False
    """Whether a pod became ready since."""
    runs: int = 0
    """Runs in the window."""
    faults: int = 0
    """Those of them that ended by a fault."""

    @property
    def error_rate(self) -> float:
        """Share of the runs that ended by a fault."""
        return self.faults / self.runs if self.runs else 0.0


@dataclass(frozen=True, kw_only=True)
class Ejection:
    """Why a variant was taken out of rotation."""

    reason: str
    """Reason as one word for programs."""
    message: str
    """Reason as a sentence for people."""
    template_hash: str = ""
    """Hash of the variant's template at that time. With another template the variant is tried again."""


@dataclass(kw_only=True, eq=False)
class VariantHealth:
    """Recorded starts and runs of a variant's pods."""

    failures: int = 0
    last_failure: str = ""
    comes_up: bool = False
    _runs: deque[tuple[float, bool]] = field(default_factory=lambda: deque(maxlen=_MAX_RUNS))

    def record_start(self) -> None:
        """Record that a pod became ready."""
        self.failures, self.last_failure, self.comes_up = 0, "", True

    def record_failure(self, message: str) -> None:
        """Record that a pod did not become ready."""
        self.failures, self.last_failure, self.comes_up = self.failures + 1, message, False

    def record_run(self, *, fault: bool, now: float) -> None:
        """Record the end of a run."""
        self._runs.append((now, fault))

    def snapshot(self, now: float) -> VariantHealthSnapshot:
        """Return the health at this moment."""
        while self._runs and self._runs[0][0] + WINDOW_SECONDS < now:
            self._runs.popleft()
        return VariantHealthSnapshot(
            failures=self.failures,
            comes_up=self.comes_up,
            runs=len(self._runs),
            faults=sum(fault for _, fault in self._runs),
        )


def detect_outlier(healths: Mapping[str, VariantHealthSnapshot]) -> tuple[str, str] | None:
    """Return the variant in rotation to eject next and the reason, or None if all may stay.

    An ejected variant leaves a healthier sibling behind, so the last one is never ejected.
    """
    for name in sorted(healths, key=lambda each: -healths[each].failures):
        siblings = [health for each, health in healths.items() if each != name]
        if healths[name].failures >= MAX_START_FAILURES and any(
            each.comes_up and not each.failures for each in siblings
        ):
            return name, "StartFailures"
    for name in sorted(healths, key=lambda each: -healths[each].error_rate):
        if _is_far_above(healths[name], [health for each, health in healths.items() if each != name]):
            return name, "ErrorRate"
    return None


def select_rotation(
    weights: Mapping[str, int], ejected: Collection[str], healths: Mapping[str, VariantHealthSnapshot]
) -> tuple[str, ...]:
    """Return the variants that get callers: weighted and not ejected, or else the healthiest one alone."""
    weighted = [name for name, weight in weights.items() if weight > 0]
    if remaining := [name for name in weighted if name not in ejected]:
        return tuple(remaining)
    # of equals the first of the spec stays
    return tuple(sorted(weighted, key=lambda name: (healths[name].failures, healths[name].error_rate))[:1])


def _is_far_above(health: VariantHealthSnapshot, siblings: Collection[VariantHealthSnapshot]) -> bool:
    runs = sum(each.runs for each in siblings)
    if health.runs < MIN_RUNS or runs < MIN_RUNS:
        return False
    others = sum(each.faults for each in siblings) / runs
    return health.error_rate >= max(MIN_ERROR_RATE, ERROR_RATE_FACTOR * others)
