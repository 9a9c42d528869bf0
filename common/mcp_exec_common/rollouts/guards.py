"""What the guards of a rollout conclude from the measures of its arms. Pure.

A guard acts on the end of a confidence interval and not on the value, so that few samples do not stop a rollout: the
lower end for what is bad if high, the upper end for ratings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mcp_exec_api.rollout_status import GuardAction, GuardMetric, GuardResult, GuardState, RolloutGuard, UnknownAction
from mcp_exec_common.rollouts.intervals import Interval

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
