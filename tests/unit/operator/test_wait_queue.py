"""Positions of waiting executions, expected waits, and updates of their status."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.test_pool import join, pool

from mcp_exec_api.code_execution import QueuePlace
from mcp_exec_api.sandbox_pool import SandboxPoolSpec
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_operator.core.pods.pod import PodState
from mcp_exec_operator.core.pods.status import refusal_of
from mcp_exec_operator.core.queueing.turns import QueueUpdate, first_update_after, next_update_after
from mcp_exec_operator.core.queueing.wait_queue import QueueFull, Throughput


def place(position: int, expected_wait_seconds: float | None = None) -> QueuePlace:
    return QueuePlace(position=position, of=40, expected_wait_seconds=expected_wait_seconds)


async def test_no_more_wait_than_may_and_one_that_leaves_makes_room() -> None:
    made = pool(maxQueued=2)
    first, _ = join(made), join(made)
    with pytest.raises(QueueFull, match="2 executions wait for a pod, of 2 that may"):
        join(made)
    made.leave(first)
    join(made)
    assert len(made.queue) == 2


def test_the_rate_is_known_after_some_were_served_and_falls_where_it_stalls() -> None:
    throughput = Throughput()
    throughput.start(100.0)
    for at in (100.5, 101.0):
        throughput.record(at)
    assert throughput.interval(101.0) is None
    throughput.record(101.5)
    assert throughput.interval(101.5) == 0.5
    assert throughput.interval(102.0) == 0.5
    assert throughput.interval(110.0) == pytest.approx(2.5)
    throughput.stop()
    assert throughput.interval(150.0) == 0.5
    throughput.start(160.0)  # the time when nobody waited says nothing
    assert throughput.interval(160.0) == 0.5
    assert throughput.interval(500.0) is None


@given(st.lists(st.floats(0, 100), min_size=3, max_size=100), st.floats(0, 200))
def test_an_expected_wait_is_never_negative(steps: list[float], later: float) -> None:
    throughput, at = Throughput(), 0.0
    throughput.start(at)
    for step in steps:
        at += step
        throughput.record(at)
    each = throughput.interval(at + later)
    assert each is None or each >= 0


@pytest.mark.parametrize(
    ("before", "after", "written"),
    [
        (QueueUpdate(), QueueUpdate(reason="PoolAtCapacity", place=place(3)), True),
        (
            QueueUpdate(reason="PoolAtCapacity", place=place(3)),
            QueueUpdate(reason="QuotaExceeded", place=place(3)),
            True,
        ),
        (QueueUpdate(reason="PoolAtCapacity"), QueueUpdate(reason="PoolAtCapacity", place=place(3)), True),
        (QueueUpdate(reason="x", place=place(5)), QueueUpdate(reason="x", place=place(5)), False),
        (QueueUpdate(reason="x", place=place(5)), QueueUpdate(reason="x", place=place(4)), True),
        (QueueUpdate(reason="x", place=place(40)), QueueUpdate(reason="x", place=place(37)), False),
        (QueueUpdate(reason="x", place=place(40)), QueueUpdate(reason="x", place=place(36)), True),
        (QueueUpdate(reason="x", place=place(5)), QueueUpdate(reason="x", place=place(5, 3.0)), True),
        (QueueUpdate(reason="x", place=place(5, 10.0)), QueueUpdate(reason="x", place=place(5, 14.0)), False),
        (QueueUpdate(reason="x", place=place(5, 10.0)), QueueUpdate(reason="x", place=place(5, 16.0)), True),
    ],
)
def test_what_changed_little_is_not_told_again(before: QueueUpdate, after: QueueUpdate, written: bool) -> None:
    assert after.differs_enough_from(before) is written


@pytest.mark.parametrize("waiting", [1, 40, 1000, 10_000])
def test_however_many_wait_their_notices_keep_to_the_budget(waiting: int) -> None:
    firsts = [first_update_after(number) for number in range(1, waiting + 1)]
    assert firsts[0] == 1.0
    assert all(sum(1 for at in firsts if start <= at < start + 1) <= 11 for start in range(0, int(firsts[-1]), 50))
    assert next_update_after(waiting) >= 5
    assert waiting / next_update_after(waiting) <= 10


async def test_a_full_quota_a_full_pool_and_a_lack_of_nodes_are_told_apart_while_some_pods_come() -> None:
    made = pool(warm={"min": 0}, maxPods=2)
    waiting = [join(made) for _ in range(3)]
    made.pods.add_expectation("a", template="t", now=0)
    assert made.explain_shortage().reason == "PoolUnavailable"
    made.supply.refuse(refusal_of(ApiError(code=403, message='exceeded quota: "q"')), now=0.0)
    assert made.explain_shortage().reason == "QuotaExceeded"
    made.supply.accept()
    made.pods.add_expectation("b", template="t", now=0)
    assert made.explain_shortage().reason == "PoolAtCapacity"
    made.leave(waiting[0])
    assert made.explain_shortage().reason == "PoolUnavailable"
    for pod in made.pods.all(PodState.CREATING):
        unscheduled = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}
        meta = {"name": pod.name, "namespace": "agents", "uid": pod.name}
        made.pods.observe({"metadata": meta, "status": {"conditions": [unscheduled]}}, now=1)
    assert made.explain_shortage().reason == "Unschedulable"


def test_the_bound_of_a_queue_has_bounds() -> None:
    assert SandboxPoolSpec(image="i").max_queued == 1000
    for most in (0, 10_001):
        with pytest.raises(ValueError, match="maxQueued"):
            SandboxPoolSpec.model_validate({"image": "i", "maxQueued": most})
