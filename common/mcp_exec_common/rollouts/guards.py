"""What the guards of a rollout conclude from the measures of its arms. Pure.

A guard acts on the end of a confidence interval and not on the value, so that few samples do not stop a rollout: the
lower end for what is bad if high, the upper end for ratings.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist
from typing import Final, Self

from mcp_exec_api.rollout_status import GuardAction, GuardMetric, GuardResult, GuardState, RolloutGuard, UnknownAction
from mcp_exec_api.wire.rollouts import MeasuredInterval

CONFIDENCE: Final = 0.95
_Z: Final = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
_T: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Quantiles of Student's distribution for 1 to 10 degrees of freedom, two-sided at 95 %."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An estimate with the ends of its 95 % confidence interval."""

    value: float
    low: float
    high: float
    samples: int

    @classmethod
    def from_measured(cls, measured: MeasuredInterval) -> Self:
        """Return the interval of a response."""
        return cls(
            value=measured.value,
            low=-math.inf if measured.low is None else measured.low,
            high=math.inf if measured.high is None else measured.high,
            samples=measured.samples,
        )

    def to_measured(self) -> MeasuredInterval:
        """Return the interval for a response: JSON has no infinite numbers."""
        return MeasuredInterval(
            value=self.value,
            low=self.low if math.isfinite(self.low) else None,
            high=self.high if math.isfinite(self.high) else None,
            samples=self.samples,
        )


def share_interval(hits: float, samples: int) -> Interval | None:
    """Return Wilson's interval of a share; None without samples. Raises ValueError if there are more hits.

    A sample may be a share itself, and count as a part of a hit.
    """
    if not 0 <= hits <= samples:
        raise ValueError(f"hits: {hits} of {samples} samples")
    if samples == 0:
        return None
    share, z2 = hits / samples, _Z * _Z
    centre = (share + z2 / (2 * samples)) / (1 + z2 / samples)
    half = _Z / (1 + z2 / samples) * math.sqrt(share * (1 - share) / samples + z2 / (4 * samples**2))
    return Interval(value=share, low=max(0.0, centre - half), high=min(1.0, centre + half), samples=samples)


def mean_interval(samples: int, total: float, squares: float) -> Interval | None:
    """Return Student's interval of a mean, from the number of samples, their sum and the sum of their squares.

    None without samples. One sample has no interval: its ends are infinite.
    """
    if samples <= 0:
        return None
    mean = total / samples
    if samples == 1:
        return Interval(value=mean, low=-math.inf, high=math.inf, samples=1)
    # rounding can make the difference slightly negative
    variance = max(0.0, (squares - samples * mean * mean) / (samples - 1))
    half = student_quantile(samples - 1) * math.sqrt(variance / samples)
    return Interval(value=mean, low=mean - half, high=mean + half, samples=samples)


def quantile_interval(samples: Sequence[float], quantile: float) -> Interval | None:
    """Return the interval of a quantile by order statistics; None without samples.

    An end that would lie beyond the samples is infinite: too few of them say nothing about that side.
    """
    ordered, count = sorted(samples), len(samples)
    if count == 0:
        return None
    value = ordered[min(count - 1, max(0, math.ceil(quantile * count) - 1))]
    half = _Z * math.sqrt(count * quantile * (1 - quantile))
    low, high = math.floor(count * quantile - half), math.ceil(count * quantile + half) + 1
    return Interval(
        value=value,
        low=ordered[low - 1] if low >= 1 else -math.inf,
        high=ordered[high - 1] if high <= count else math.inf,
        samples=count,
    )


def student_quantile(freedom: int) -> float:
    """Return the two-sided 95 % quantile of Student's distribution, exact to three digits."""
    if freedom <= len(_T):
        return _T[freedom - 1]
    # Cornish-Fisher expansion (Abramowitz and Stegun 26.7.5)
    z, n = _Z, float(freedom)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3


ArmIntervals = Mapping[GuardMetric, Interval]
"""What one arm measured in a guard's window. A metric without samples is missing."""

_ORDER: Final = {GuardState.OK: 0, GuardState.UNKNOWN: 1, GuardState.VIOLATED: 2}


class Verdict(StrEnum):
    """What the guards together demand, from the mildest to the most severe."""

    PROCEED = "Proceed"
    HOLD = "Hold"
    PAUSE = "Pause"
    ROLLBACK = "Rollback"


_SEVERITY: Final = {verdict: number for number, verdict in enumerate(Verdict)}


@dataclass(frozen=True, kw_only=True)
class GuardDecision:
    """Verdict of the guards, and what each of them found."""

    verdict: Verdict
    results: list[GuardResult]
    message: str


def decide(
    guards: Sequence[RolloutGuard],
    measures: Mapping[str, Mapping[str, ArmIntervals]],
    *,
    arms: Sequence[str],
    control: str,
    at_end: bool,
) -> GuardDecision:
    """Return what the guards demand. `measures` is by guard and arm; an arm or a guard without measures is missing.

    `at_end`: whether the stage is over. Only then can a guard without enough samples act.
    """
    treated = [arm for arm in arms if arm != control]
    verdict, message, results = Verdict.PROCEED, "", []
    for guard in guards:
        by_arm = measures.get(guard.name, {})
        found = [_judge(guard, arm, by_arm.get(arm, {}), by_arm.get(control, {})) for arm in treated]
        if not found:
            continue
        worst = max(found, key=lambda result: _ORDER[result.state])
        results.append(worst)
        demanded = _demand(guard, worst.state, at_end=at_end)
        if _SEVERITY[demanded] > _SEVERITY[verdict]:
            verdict, message = demanded, _explain(guard, worst)
    return GuardDecision(verdict=verdict, results=results, message=message)


def _judge(guard: RolloutGuard, arm: str, measured: ArmIntervals, compared: ArmIntervals) -> GuardResult:
    """Return what a guard finds of one arm."""
    found, base = measured.get(guard.metric), compared.get(guard.metric)
    samples = found.samples if found else 0
    unknown = GuardResult(name=guard.name, metric=guard.metric, state=GuardState.UNKNOWN, arm=arm, samples=samples)
    needed = 0 if guard.metric is GuardMetric.START_FAILURES else guard.min_samples
    if found is None or found.samples < needed:
        return unknown
    is_rating = guard.metric is GuardMetric.RATING
    limit = guard.threshold
    if guard.compare_to is not None:
        if base is None or base.samples < needed:
            return unknown
        limit = base.value - guard.threshold if is_rating else base.value + guard.threshold
    bound = found.high if is_rating else found.low
    is_beyond = bound < limit if is_rating else bound > limit
    state = GuardState.VIOLATED if is_beyond else GuardState.OK
    # an infinite end has no form in JSON
    finite = bound if abs(bound) != float("inf") else None
    return unknown.model_copy(update={"state": state, "value": found.value, "bound": finite, "limit": limit})


def _demand(guard: RolloutGuard, state: GuardState, *, at_end: bool) -> Verdict:
    """Return what a guard demands."""
    if state is GuardState.VIOLATED:
        return Verdict.ROLLBACK if guard.action is GuardAction.ROLLBACK else Verdict.PAUSE
    if state is GuardState.UNKNOWN and at_end:
        unknown = {UnknownAction.HOLD: Verdict.HOLD, UnknownAction.ROLLBACK: Verdict.ROLLBACK}
        return unknown.get(guard.on_unknown, Verdict.PROCEED)
    return Verdict.PROCEED


def _explain(guard: RolloutGuard, result: GuardResult) -> str:
    if result.state is GuardState.UNKNOWN:
        return f"guard {guard.name}: arm {result.arm} has {result.samples} samples; {guard.min_samples} are needed"
    if guard.metric is GuardMetric.START_FAILURES:
        return (
            f"guard {guard.name}: {result.value:.0f} consecutive pods of the pool of arm {result.arm} did not become "
            f"ready, which is above {result.limit:.4g}"
        )
    side = "below" if guard.metric is GuardMetric.RATING else "above"
    return (
        f"guard {guard.name}: {guard.metric} of arm {result.arm} is {result.value:.4g} in {result.samples} samples, "
        f"and its 95 % confidence interval is {side} {result.limit:.4g}"
    )
