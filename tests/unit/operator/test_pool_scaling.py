"""A pool in memory that follows demand: what it makes and ends, and what it says."""

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.operator.test_inventory import item

from mcp_exec_api.sandbox_pool import SandboxPoolStatus
from mcp_exec_operator.pools.partition import Partition
from mcp_exec_operator.pools.status import build_status, condition_of
from mcp_exec_operator.scaling.plan import REFILL_DELAY_SECONDS


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def pool(clock: Clock, **spec: Any) -> Partition:
    made = Partition(namespace="agents", name="default", clock=clock)
    given = {"image": "i", "warm": {"min": 1, "max": 20}, "scaling": {"headroom": 1, "stableSeconds": 60}} | spec
    made.configure({"metadata": {"uid": "u", "generation": 1}, "spec": given})
    made.isolated = True
    return made


def turn(made: Partition, clock: Clock) -> int:
    """One look, as the keeper has it. Returns how many pods were asked for, once what is short has stood a while."""
    made.decide(clock.now)
    for pod in made.stock.surplus(clock.now):
        made.inventory.retire(pod)
        made.inventory.forget(pod.name)
    asked = made.stock.missing(clock.now)
    if not asked:
        clock.now += REFILL_DELAY_SECONDS
        asked = made.stock.missing(clock.now)
    for index in range(asked):
        made.inventory.expect(f"p{clock.now}-{index}", template=made.template, now=clock.now)
    return asked


def start(made: Partition, clock: Clock, *, after: float) -> None:
    clock.now += after
    for pod in made.inventory.all():
        if pod.state == "creating":
            made.inventory.observe(item(pod.name, template=made.template), now=clock.now)
            made.became_ready(pod.name)


def status(made: Partition, clock: Clock) -> SandboxPoolStatus:
    made.note_warmth(clock.now)
    return build_status(made, moment=datetime(2026, 11, 22, tzinfo=UTC), now=clock.now)


async def test_a_pool_grows_with_its_demand_and_shrinks_after_it() -> None:
    clock = Clock()
    made = pool(clock)
    assert turn(made, clock) == 1
    start(made, clock, after=4)
    assert made.take() is not None
    for _ in range(19):
        made.wait()
    # 20 in 10 s and 4 s to start
    assert made.scaler.demand.measured(clock.now).rate == 2
    assert turn(made, clock) == 20
    assert made.desired == 20
    assert turn(made, clock) == 0
    start(made, clock, after=4)
    assert not made.waiters
    # one more was made than waited, and pods were seen to take 4.2 s
    assert turn(made, clock) == 9
    start(made, clock, after=4)
    assert (made.desired, made.inventory.counts.warm) == (10, 10)
    clock.now += 30
    turn(made, clock)
    assert (made.desired, made.inventory.counts.warm) == (10, 10)
    clock.now += 121
    turn(made, clock)
    clock.now += 61
    turn(made, clock)
    assert (made.desired, made.inventory.counts.warm) == (1, 1)


async def test_a_pool_may_have_no_pods_until_one_is_asked_for() -> None:
    clock = Clock()
    made = pool(clock, warm={"min": 0, "max": 5})
    assert turn(made, clock) == 0
    waiter = made.wait()
    assert turn(made, clock) == 3
    start(made, clock, after=2)
    assert waiter.future.done()
    assert made.inventory.counts.warm == 2


@pytest.mark.parametrize("on_empty", ["ColdStart", "Wait"])
async def test_refill_is_bounded_and_never_holds_up_who_waits(on_empty: str) -> None:
    clock = Clock()
    scaling = {"headroom": 10, "refillPerSecond": 1, "refillBurst": 2}
    made = pool(clock, scaling=scaling, onEmpty=on_empty)
    for _ in range(4):
        made.wait()
    assert turn(made, clock) == 4 + 2
    assert turn(made, clock) == 0
    again = made.stock.missing_at(clock.now)
    assert again is not None
    assert clock.now < again <= clock.now + 1
    clock.now = again
    assert turn(made, clock) == 1


async def test_no_more_is_taken_from_refill_than_there_is_room_to_ask_for() -> None:
    clock = Clock()
    made = pool(clock, warm={"min": 9, "max": 10}, scaling={"refillPerSecond": 1, "refillBurst": 9})
    made.room_was_made()
    assert made.stock.missing(clock.now, room=4) == 4
    assert made.scaler.refill.available(clock.now) == 5


async def test_a_pool_of_fixed_size_fills_at_once_unless_it_is_told_otherwise() -> None:
    clock = Clock()
    assert turn(pool(clock, warm={"min": 100}, scaling={"refillBurst": 2}), clock) == 100
    assert turn(pool(clock, warm={"min": 100}, scaling={"refillBurst": 2, "refillPerSecond": 5}), clock) == 2


async def test_the_status_says_what_was_measured_and_why_so_many_pods_are_desired() -> None:
    clock = Clock()
    made = pool(clock)
    said = status(made, clock)
    assert (said.arrival_rate, said.startup_p95, said.warm_hit_rate) == (0, None, None)
    assert condition_of(said, "Scaled") is None
    turn(made, clock)
    start(made, clock, after=4)
    made.take()
    made.wait()
    made.decide(clock.now)
    said = status(made, clock)
    assert (said.arrival_rate, said.startup_p95, said.warm_hit_rate, said.desired) == (0.2, 4, 0.5, 3)
    scaled = condition_of(said, "Scaled")
    assert scaled is not None
    assert (scaled.status, scaled.reason) == ("True", "Demand")
    assert scaled.message == "0.2/s arrive and a pod takes 4 s to start: 1, and 1 headroom, and 1 that wait"


async def test_a_pool_that_may_not_grow_as_it_should_says_so() -> None:
    clock = Clock()
    made = pool(clock, warm={"min": 1, "max": 2})
    for _ in range(5):
        made.wait()
    turn(made, clock)
    scaled = condition_of(status(made, clock), "Scaled")
    assert scaled is not None
    assert (scaled.status, scaled.reason) == ("False", "AtMaximum")


async def test_pods_that_are_used_while_they_are_replaced_do_not_make_a_pool_unready() -> None:
    clock = Clock()
    made = pool(clock, scaling={"headroom": 1, "fastWindowSeconds": 1})
    turn(made, clock)
    start(made, clock, after=1)
    made.take()
    for _ in range(3):
        made.wait()
    turn(made, clock)
    start(made, clock, after=1)
    for _ in range(4):
        assert made.take() is not None
    assert turn(made, clock)
    # 4/s arrive and a pod takes a second to start: four of the desired ones are always on their way
    counts = made.inventory.counts
    assert (made.desired, counts.warm, counts.coming) == (5, 1, 4)
    ready = condition_of(status(made, clock), "Ready")
    assert ready is not None
    assert ready.status == "True"
    made.take()
    ready = condition_of(status(made, clock), "Ready")
    assert ready is not None
    assert ready.status == "False"


async def test_only_pods_that_this_operator_asked_for_tell_how_long_pods_take() -> None:
    clock = Clock()
    made = pool(clock)
    made.inventory.observe(item("old", template=made.template), now=clock.now)
    made.became_ready("old")
    assert made.scaler.demand.measured(clock.now).startup_seconds is None
