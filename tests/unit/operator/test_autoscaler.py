"""How many pods should be warm: the invariants, whatever is asked."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_api.sandbox_pool import SandboxPoolSpec
from mcp_exec_operator.core.pods.pod import PodCounts
from mcp_exec_operator.core.scaling.autoscaler import (
    Autoscaler,
    DemandEstimate,
    ScalingDecision,
    SlidingMaximum,
    WarmPodBounds,
    recommend,
)
from mcp_exec_operator.core.scaling.plan import pods_to_create

needs = st.builds(
    DemandEstimate,
    rate=st.floats(0, 500),
    startup_seconds=st.floats(0.01, 300),
    waiting=st.integers(0, 5000),
    headroom=st.integers(0, 1000),
)


@st.composite
def bounds(draw: st.DrawFn) -> WarmPodBounds:
    minimum = draw(st.integers(0, 50))
    return WarmPodBounds(minimum=minimum, maximum=draw(st.integers(minimum, 500)), room=draw(st.integers(-10, 600)))


def spec(**changes: Any) -> SandboxPoolSpec:
    return SandboxPoolSpec.model_validate({"image": "i", "warm": {"min": 1, "max": 20}} | changes)


def decided(
    scaler: Autoscaler, now: float, *, waiting: int = 0, counts: PodCounts | None = None, **changes: Any
) -> ScalingDecision:
    made = spec(**changes)
    scaler.configure(made)
    return scaler.decide(made, waiting=waiting, counts=counts or PodCounts(), now=now)


@given(need=needs, kept=st.integers(0, 1000), within=bounds())
def test_never_fewer_than_the_least_nor_more_than_any_bound_allows(
    need: DemandEstimate, kept: int, within: WarmPodBounds
) -> None:
    found = recommend(demand=need, stabilized=kept, bounds=within)
    assert within.minimum <= found.desired <= within.maximum
    assert found.desired <= max(within.room, within.minimum)
    assert 0 <= found.expected <= found.desired
    assert found.limited == (found.desired < need.pods)
    assert found.reason
    assert found.message


@given(need=needs, within=bounds())
def test_what_is_needed_is_had_at_once_as_far_as_bounds_allow(need: DemandEstimate, within: WarmPodBounds) -> None:
    found = recommend(demand=need, stabilized=0, bounds=within)
    assert found.desired == max(within.minimum, min(need.pods, within.maximum, within.room))


@given(less=needs, more=needs, kept=st.integers(0, 1000), within=bounds())
def test_more_demand_never_means_fewer_pods(
    less: DemandEstimate, more: DemandEstimate, kept: int, within: WarmPodBounds
) -> None:
    higher = DemandEstimate(
        rate=max(less.rate, more.rate),
        startup_seconds=max(less.startup_seconds, more.startup_seconds),
        waiting=max(less.waiting, more.waiting),
        headroom=max(less.headroom, more.headroom),
    )
    found = [recommend(demand=need, stabilized=kept, bounds=within).desired for need in (less, higher)]
    assert found == sorted(found)


@given(
    need=needs, kept=st.integers(0, 1000), within=bounds(), pods=st.lists(st.integers(0, 30), min_size=5, max_size=5)
)
def test_pods_that_were_asked_for_are_not_asked_for_again(
    need: DemandEstimate, kept: int, within: WarmPodBounds, pods: list[int]
) -> None:
    counts = PodCounts(**dict(zip(("creating", "starting", "warm", "busy", "terminating"), pods, strict=True)))
    max_pods = max(within.room, 0) + counts.busy + counts.terminating
    desired = recommend(demand=need, stabilized=kept, bounds=within).desired
    args: dict[str, int] = {"warm": desired, "max_pods": max_pods, "cold_starts": need.waiting}
    asked = pods_to_create(**args, counts=counts)
    after = PodCounts(
        creating=counts.creating + asked,
        starting=counts.starting,
        warm=counts.warm,
        busy=counts.busy,
        terminating=counts.terminating,
    )
    assert after.total <= max(max_pods, counts.total)
    assert pods_to_create(**args, counts=after) == 0


@given(
    values=st.lists(st.tuples(st.floats(0, 20), st.integers(0, 100)), min_size=1, max_size=40),
    seconds=st.floats(0, 60),
)
def test_a_peak_is_the_highest_of_its_window(values: list[tuple[float, int]], seconds: float) -> None:
    peak, at, seen = SlidingMaximum(), 0.0, []
    for gap, value in values:
        at += gap
        seen.append((at, value))
        peak.add(value, at)
        assert peak.get(seconds, at) == max(each for when, each in seen if when + seconds >= at)


@given(
    steps=st.lists(st.tuples(st.floats(0.1, 30), st.integers(0, 30)), min_size=1, max_size=25),
    stable=st.integers(0, 60),
)
def test_it_grows_at_once_and_shrinks_only_after_the_stable_time(steps: list[tuple[float, int]], stable: int) -> None:
    scaler, now = Autoscaler(), 0.0
    scaling = {"stableSeconds": stable, "fastWindowSeconds": 5, "slowWindowSeconds": 20}
    seen: list[tuple[float, int]] = []
    for gap, arrivals in steps:
        now += gap
        for _ in range(arrivals):
            scaler.demand.add_arrival(now, warm=True)
        found = decided(scaler, now, scaling=scaling)
        measured = scaler.demand.measure(now)
        need = DemandEstimate(rate=measured.rate, startup_seconds=3.0, headroom=2)
        seen.append((now, min(20, max(1, need.pods))))
        assert found.desired == max(pods for when, pods in seen if when + stable >= now)
    assert decided(scaler, now + stable + 21, scaling=scaling).desired == 1


def test_what_waits_is_added_for_as_long_as_it_waits() -> None:
    scaler = Autoscaler()
    assert decided(scaler, 0, waiting=5).desired == 7
    assert decided(scaler, 1).desired == 2


def test_pods_that_run_or_end_leave_less_room() -> None:
    found = decided(Autoscaler(), 0, waiting=15, counts=PodCounts(busy=20, terminating=5), maxPods=30)
    assert (found.desired, found.limited, found.reason) == (5, True, "AtMaxPods")


def test_a_pool_of_fixed_size_stays_as_it_is() -> None:
    scaler = Autoscaler()
    for _ in range(100):
        scaler.demand.add_arrival(1.0, warm=False)
    for warm in ({"min": 3}, {"min": 3, "max": 3}, {"min": 3, "max": 1}):
        found = decided(scaler, 1.0, waiting=9, warm=warm)
        assert (found.desired, found.expected, found.limited, found.reason) == (3, 0, False, "FixedSize")


def test_a_minimum_over_the_maximum_lifts_it() -> None:
    assert spec(warm={"min": 30, "max": 5}).max_warm == 30


def test_a_new_operator_keeps_the_pods_that_the_one_before_it_found_to_be_needed() -> None:
    scaler = Autoscaler()
    scaler.restore({"desired": 12, "startupP95": 4.5}, now=0)
    assert decided(scaler, 179).desired == 12
    assert decided(scaler, 181).desired == 1
    assert scaler.demand.measure(0).startup_seconds == 4.5


@pytest.mark.parametrize(
    ("need", "kept", "within", "reason", "message"),
    [
        (
            DemandEstimate(rate=2.5, startup_seconds=3.1, headroom=2),
            0,
            WarmPodBounds(minimum=3, maximum=50, room=99),
            "Demand",
            "2.5/s arrive and a pod takes 3.1 s to start: 8, and 2 headroom",
        ),
        (
            DemandEstimate(rate=2.5, startup_seconds=3.1, headroom=2, waiting=4),
            0,
            WarmPodBounds(minimum=3, maximum=9, room=99),
            "AtMaximum",
            "2.5/s arrive and a pod takes 3.1 s to start: 8, and 2 headroom, and 4 waiting;"
            " 14 are more than warm.max, 9",
        ),
        (
            DemandEstimate(rate=0.1, startup_seconds=3),
            0,
            WarmPodBounds(minimum=3, maximum=9, room=99),
            "AtMinimum",
            "0.1/s arrive and a pod takes 3 s to start: 1; warm.min is 3",
        ),
        (
            DemandEstimate(headroom=2),
            7,
            WarmPodBounds(minimum=0, maximum=9, room=99),
            "Stabilizing",
            "no recent demand; 7 were needed within stableSeconds",
        ),
        (
            DemandEstimate(waiting=4, headroom=2),
            0,
            WarmPodBounds(minimum=0, maximum=9, room=3),
            "AtMaxPods",
            "2 headroom and 4 waiting; maxPods leaves room for 3",
        ),
    ],
)
def test_a_decision_says_why(need: DemandEstimate, kept: int, within: WarmPodBounds, reason: str, message: str) -> None:
    found = recommend(demand=need, stabilized=kept, bounds=within)
    assert (found.reason, found.message) == (reason, message)


def test_time_alone_changes_nothing_in_a_pool_at_its_minimum() -> None:
    scaler = Autoscaler()
    decided(scaler, 0)
    assert scaler.reconsider_after(spec()) is None
    decided(scaler, 0, waiting=3)
    assert scaler.reconsider_after(spec()) == 5
    assert scaler.reconsider_after(spec(warm={"min": 9})) is None


def test_a_rollout_raises_a_pool_within_its_greatest_number_of_pods_and_gives_it_back() -> None:
    for warm in ({"min": 1, "max": 20}, {"min": 1}):
        scaler = Autoscaler(required=30)
        found = decided(scaler, 0.0, warm=warm, maxPods=25)
        assert (found.desired, found.reason) == (25, "Rollout")
        assert found.message.endswith("; a rollout needs 25")
        scaler.required = 1
        assert decided(scaler, 1.0, warm=warm, maxPods=25).desired == 1
