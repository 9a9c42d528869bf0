"""A pool in memory that follows demand: plans and status."""

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.clock import Clock
from tests.unit.operator.test_pod_cache import item
from tests.unit.operator.test_pool import join, plan

from mcp_exec_api.sandbox_pool import SandboxPoolStatus
from mcp_exec_operator.core.pods.pod import PodState
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.core.pools.status import build_status, find_condition
from mcp_exec_operator.core.scaling.plan import REFILL_DELAY_SECONDS, PodPlan


def pool(clock: Clock, **spec: Any) -> Pool:
    made = Pool(namespace="agents", name="default", clock=clock)
    given = {"image": "i", "warm": {"min": 1, "max": 20}, "scaling": {"headroom": 1, "stableSeconds": 60}} | spec
    made.configure({"metadata": {"uid": "u", "generation": 1}, "spec": given})
    made.isolation.verify("")
    return made


def turn(made: Pool, clock: Clock) -> int:
    """Reconcile once, as the controller does. Return the number of created pods, after the delay of a refill."""
    created = _delete_excess(made, plan(made, clock.now)).create
    if not created:
        clock.now += REFILL_DELAY_SECONDS
        created = _delete_excess(made, plan(made, clock.now)).create
    for index in range(created):
        made.pods.add_expectation(f"p{clock.now}-{index}", template=made.shape.template_hash, now=clock.now)
    return created


def _delete_excess(made: Pool, found: PodPlan) -> PodPlan:
    for pod in found.delete:
        made.pods.retire(pod)
        made.pods.forget(pod.name)
    return found


def start(made: Pool, clock: Clock, *, after: float) -> None:
    clock.now += after
    for pod in made.pods.all(PodState.CREATING):
        made.pods.observe(item(pod.name, template=made.shape.template_hash), now=clock.now)
        made.mark_ready(pod.name)


def status(made: Pool, clock: Clock) -> SandboxPoolStatus:
    made.supply.update_lacking(made.counts, clock.now)
    return build_status(made, moment=datetime(2026, 11, 22, tzinfo=UTC), now=clock.now)


@pytest.mark.parametrize("on_empty", ["ColdStart", "Wait"])
async def test_refill_is_bounded_and_never_holds_up_who_waits(on_empty: str) -> None:
    clock = Clock()
    scaling = {"headroom": 10, "refillPerSecond": 1, "refillBurst": 2}
    made = pool(clock, scaling=scaling, onEmpty=on_empty)
    for _ in range(4):
        join(made)
    assert turn(made, clock) == 4 + 2
    assert turn(made, clock) == 0
    again = plan(made, clock.now).next_at
    assert again is not None
    assert clock.now < again <= clock.now + 1
    clock.now = again
    assert turn(made, clock) == 1


async def test_no_more_is_taken_from_refill_than_there_is_room_to_ask_for() -> None:
    clock = Clock()
    made = pool(clock, warm={"min": 9, "max": 10}, scaling={"refillPerSecond": 1, "refillBurst": 9})
    made.refill_now()
    assert made.plan_pods(now=clock.now, max_create=4).create == 4
    assert made.supply.autoscaler.refill.available(clock.now) == 5


async def test_a_pool_of_fixed_size_fills_at_once_unless_it_is_told_otherwise() -> None:
    clock = Clock()
    assert turn(pool(clock, warm={"min": 100}, scaling={"refillBurst": 2}), clock) == 100
    assert turn(pool(clock, warm={"min": 100}, scaling={"refillBurst": 2, "refillPerSecond": 5}), clock) == 2


async def test_the_status_says_what_was_measured_and_why_so_many_pods_are_desired() -> None:
    clock = Clock()
    made = pool(clock)
    said = status(made, clock)
    assert (said.arrival_rate, said.startup_p95, said.warm_hit_rate) == (0, None, None)
    assert find_condition(said, "Scaled") is None
    turn(made, clock)
    start(made, clock, after=4)
    made.take()
    join(made)
    plan(made, clock.now)
    said = status(made, clock)
    assert (said.arrival_rate, said.startup_p95, said.warm_hit_rate, said.desired) == (0.2, 4, 0.5, 3)
    scaled = find_condition(said, "Scaled")
    assert scaled is not None
    assert (scaled.status, scaled.reason) == ("True", "Demand")
    assert scaled.message == "0.2/s arrive and a pod takes 4 s to start: 1, and 1 headroom, and 1 waiting"


async def test_pods_that_are_used_while_they_are_replaced_do_not_make_a_pool_unready() -> None:
    clock = Clock()
    made = pool(clock, scaling={"headroom": 1, "fastWindowSeconds": 1})
    turn(made, clock)
    start(made, clock, after=1)
    made.take()
    for _ in range(3):
        join(made)
    turn(made, clock)
    start(made, clock, after=1)
    for _ in range(4):
        assert made.take() is not None
    assert turn(made, clock)
    # 4/s arrive and a pod takes a second to start: four of the desired ones are always on their way
    counts = made.counts
    assert (made.desired, counts.warm, counts.coming) == (5, 1, 4)
    ready = find_condition(status(made, clock), "Ready")
    assert ready is not None
    assert ready.status == "True"
    made.take()
    ready = find_condition(status(made, clock), "Ready")
    assert ready is not None
    assert ready.status == "False"


async def test_only_pods_that_this_operator_asked_for_tell_how_long_pods_take() -> None:
    clock = Clock()
    made = pool(clock)
    made.pods.observe(item("old", template=made.shape.template_hash), now=clock.now)
    made.mark_ready("old")
    assert made.supply.autoscaler.demand.measure(clock.now).startup_seconds is None
