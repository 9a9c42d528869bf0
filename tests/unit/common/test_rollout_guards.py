"""What guards conclude, and how certain a measure is."""

import math
from typing import Any

import pytest

from mcp_exec_api.rollout_status import GuardMetric, GuardState, RolloutGuard
from mcp_exec_common.rollouts.guards import (
    ArmIntervals,
    GuardDecision,
    Interval,
    Verdict,
    decide,
    mean_interval,
    quantile_interval,
    share_interval,
    student_quantile,
)


def errors(failures: int, samples: int) -> ArmIntervals:
    found = share_interval(failures, samples)
    return {GuardMetric.ERROR_RATE: found} if found else {}


def ratings(value: float, half: float, samples: int) -> ArmIntervals:
    return {GuardMetric.RATING: Interval(value=value, low=value - half, high=value + half, samples=samples)}


def judge(
    code: ArmIntervals, direct: ArmIntervals | None = None, *, at_end: bool = False, **changes: Any
) -> GuardDecision:
    guard = RolloutGuard.model_validate(
        {"name": "g", "metric": "errorRate", "threshold": 0.2, "minSamples": 5} | changes
    )
    measures = {"g": {"code": code, "direct": direct or {}}}
    return decide([guard], measures, arms=["direct", "code"], control="direct", at_end=at_end)


def test_a_bad_arm_is_rolled_back() -> None:
    decision = judge(errors(18, 20))
    assert decision.verdict is Verdict.ROLLBACK
    assert decision.message.startswith("guard g: errorRate of arm code is 0.9 in 20 samples")
    (result,) = decision.results
    assert (result.state, result.arm, result.value) == (GuardState.VIOLATED, "code", 0.9)


def test_few_samples_roll_nothing_back() -> None:
    assert judge(errors(4, 4)).verdict is Verdict.PROCEED
    assert judge(errors(2, 6)).verdict is Verdict.PROCEED  # 33 %, but as low as 10 % by chance
    assert judge(errors(60, 180)).verdict is Verdict.ROLLBACK


@pytest.mark.parametrize(
    ("on_unknown", "expected"), [("Hold", "Hold"), ("Proceed", "Proceed"), ("Rollback", "Rollback")]
)
def test_what_is_unknown_counts_only_at_the_end_of_a_stage(on_unknown: str, expected: str) -> None:
    assert judge({}, onUnknown=on_unknown).verdict is Verdict.PROCEED
    decision = judge({}, onUnknown=on_unknown, at_end=True)
    assert (decision.verdict, decision.results[0].state) == (Verdict(expected), GuardState.UNKNOWN)


def test_a_guard_can_pause_instead() -> None:
    assert judge(errors(18, 20), action="Pause").verdict is Verdict.PAUSE


def test_an_arm_that_fails_like_the_control_arm_is_no_worse() -> None:
    assert judge(errors(18, 20), errors(18, 20), compareTo="Control").verdict is Verdict.PROCEED
    assert judge(errors(18, 20), errors(0, 20), compareTo="Control").verdict is Verdict.ROLLBACK


def test_a_comparison_needs_samples_of_the_control_arm() -> None:
    assert judge(errors(18, 20), errors(0, 4), compareTo="Control").results[0].state is GuardState.UNKNOWN


def test_a_low_rating_is_worse() -> None:
    rating = {"metric": "rating", "threshold": 3}
    assert judge(ratings(2, 0.5, 20), **rating).verdict is Verdict.ROLLBACK
    assert judge(ratings(2.8, 0.5, 20), **rating).verdict is Verdict.PROCEED
    assert judge(ratings(5, 0.1, 20), **rating).verdict is Verdict.PROCEED


def test_the_control_arm_stops_nothing() -> None:
    assert judge(errors(0, 20), errors(20, 20)).verdict is Verdict.PROCEED


def test_the_most_severe_guard_decides() -> None:
    guards = [
        RolloutGuard(name="a", metric=GuardMetric.ERROR_RATE, threshold=0.2, min_samples=5),
        RolloutGuard.model_validate({"name": "b", "metric": "errorRate", "threshold": 0.1, "action": "Pause"}),
    ]
    measures = {"a": {"code": errors(18, 20)}, "b": {"code": errors(18, 20)}}
    decision = decide(guards, measures, arms=["direct", "code"], control="direct", at_end=False)
    assert (decision.verdict, [each.name for each in decision.results]) == (Verdict.ROLLBACK, ["a", "b"])
    assert decision.message.startswith("guard a")


def test_an_infinite_end_of_an_interval_is_left_out() -> None:
    found = {GuardMetric.COST_PER_CONVERSATION: Interval(value=1, low=-math.inf, high=math.inf, samples=1)}
    decision = judge(found, metric="costPerConversation", threshold=0.5, minSamples=1)
    assert (decision.verdict, decision.results[0].bound) == (Verdict.PROCEED, None)


@pytest.mark.parametrize(
    ("hits", "samples", "low", "high"),
    [(0, 10, 0.0, 0.27753), (5, 10, 0.23659, 0.76341), (10, 10, 0.72247, 1.0), (1, 100, 0.00177, 0.05449)],
)
def test_a_share_has_wilsons_interval(hits: int, samples: int, low: float, high: float) -> None:
    found = share_interval(hits, samples)
    assert found is not None
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


@pytest.mark.parametrize(
    ("freedom", "expected"), [(1, 12.706), (10, 2.228), (11, 2.201), (20, 2.086), (30, 2.042), (1000, 1.962)]
)
def test_students_quantile_is_exact_to_three_digits(freedom: int, expected: float) -> None:
    assert student_quantile(freedom) == pytest.approx(expected, abs=1e-3)


def test_a_mean_has_students_interval() -> None:
    samples = [1.0, 2.0, 3.0, 4.0, 5.0]
    found = mean_interval(5, sum(samples), sum(each**2 for each in samples))
    assert found is not None
    assert (found.low, found.value, found.high) == (pytest.approx(1.0368, abs=1e-3), 3, pytest.approx(4.9632, abs=1e-3))


def test_one_sample_says_nothing_about_a_mean() -> None:
    assert mean_interval(1, 7, 49) == Interval(value=7, low=-math.inf, high=math.inf, samples=1)


def test_a_quantile_has_no_upper_end_beyond_its_samples() -> None:
    few, many = quantile_interval(range(20), 0.95), quantile_interval(range(1, 1001), 0.95)
    assert few is not None
    assert (few.value, few.high) == (18, math.inf)
    assert many is not None
    assert (many.low, many.value, many.high) == (936, 950, 965)


def test_nothing_is_known_without_samples() -> None:
    assert (share_interval(0, 0), mean_interval(0, 0, 0), quantile_interval([], 0.95)) == (None, None, None)


def test_more_failures_than_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="2 of 1 samples"):
        share_interval(2, 1)
