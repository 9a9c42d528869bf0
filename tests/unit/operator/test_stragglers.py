"""Pods that take far longer to start than others."""

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.operator.test_pod_cache import item
from tests.unit.operator.test_pool import join, plan, pool

from mcp_exec_api.meta import now as this_moment
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.core.scaling.plan import is_stuck

PULLING = {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}]}


@pytest.fixture
def made() -> Pool:
    """A pool of two pods, whose time stands at 0."""
    found = pool()
    found.clock = lambda: 0.0
    return found


def starts(made: Pool, name: str, *, at: float, node: str = "n1", **status: Any) -> None:
    """A pod is asked for, and its node makes it."""
    template, pods = made.shape.template_hash, made.pods
    pods.add_expectation(name, template=template, now=at)
    seen = item(name, phase="Pending", template=template, node=node)
    pods.observe({**seen, "status": {**seen["status"], **status}}, now=at)


def comes_up(made: Pool, name: str, *, at: float, node: str = "n1") -> None:
    made.pods.observe(item(name, template=made.shape.template_hash, node=node), now=at)
    made.clock = lambda: at
    made.mark_ready(name)


def missing(made: Pool, at: float) -> int:
    made.refill_now()
    return plan(made, at).create


def test_one_more_pod_is_made_beside_those_that_are_late(made: Pool) -> None:
    starts(made, "a", at=0)
    starts(made, "b", at=0)
    assert (missing(made, 9.0), missing(made, 11.0)) == (0, 1)
    starts(made, "c", at=11)
    assert (missing(made, 12.0), plan(made, 12.0).delete) == (0, ())


def test_a_late_pod_that_nobody_wants_is_ended(made: Pool) -> None:
    starts(made, "a", at=0)
    made.configure({"metadata": {"uid": "u", "generation": 2}, "spec": {"image": "i", "warm": {"min": 0}}})
    assert (missing(made, 11.0), [pod.name for pod in plan(made, 11.0).delete]) == (0, ["a"])


async def test_one_more_pod_is_made_for_who_waits_for_a_late_one(made: Pool) -> None:
    made.configure({"metadata": {"uid": "u", "generation": 2}, "spec": {"image": "i", "warm": {"min": 0}}})
    join(made)
    assert missing(made, 0.0) == 1
    starts(made, "a", at=0)
    assert (missing(made, 9.0), missing(made, 11.0)) == (0, 1)


def test_a_pod_may_take_three_times_as_long_as_others_did_in_the_median(made: Pool) -> None:
    for name, at in (("a", 20), ("b", 20), ("held-up", 100)):
        starts(made, name, at=0)
        comes_up(made, name, at=at)
        assert made.take() is not None
    starts(made, "c", at=100)
    starts(made, "d", at=100)
    assert (missing(made, 159.0), missing(made, 161.0)) == (0, 1)


def test_a_pod_that_comes_up_late_leaves_one_too_many(made: Pool) -> None:
    starts(made, "a", at=0)
    starts(made, "b", at=0)
    starts(made, "c", at=11)
    for name in ("a", "b"):
        comes_up(made, name, at=15)
    assert [pod.name for pod in plan(made, 15.0).delete] == ["c"]


def test_late_pods_are_stuck_once_a_much_younger_one_has_been_up_for_a_moment(made: Pool) -> None:
    starts(made, "a", at=0)
    starts(made, "b", at=5)
    starts(made, "c", at=12)
    comes_up(made, "c", at=16)
    a, b = made.pods.get("a"), made.pods.get("b")
    assert a is not None
    assert b is not None
    assert not is_stuck(a, 17.0)
    assert is_stuck(a, 19.0)
    assert not is_stuck(b, 30.0)  # c was made but seven seconds later
    comes_up(made, "a", at=20)
    assert not is_stuck(a, 30.0)


@pytest.mark.parametrize("other", [{"node": "n2"}, {"image": "another"}])
def test_a_pod_of_another_node_or_image_says_nothing_of_late_ones(made: Pool, other: dict[str, str]) -> None:
    starts(made, "a", at=0)
    if "image" in other:
        made.configure({"metadata": {"uid": "u", "generation": 2}, "spec": {"image": other["image"]}})
    starts(made, "c", at=12, node=other.get("node", "n1"))
    comes_up(made, "c", at=16, node=other.get("node", "n1"))
    a = made.pods.get("a")
    assert a is not None
    assert not is_stuck(a, 100.0)


@pytest.mark.parametrize(("node", "status"), [("", {}), ("n1", PULLING)])
def test_a_pod_without_a_node_or_an_image_is_held_and_not_late(made: Pool, node: str, status: dict[str, Any]) -> None:
    starts(made, "a", at=0, node=node, **status)
    starts(made, "b", at=0, node=node, **status)
    assert made.late_pods(100.0) == []
    assert missing(made, 100.0) == 0


def test_a_pod_that_another_operator_asked_for_is_as_late_as_it_is_old(made: Pool) -> None:
    for name, seconds in (("a", 30), ("b", 5)):
        seen = item(name, phase="Pending", template=made.shape.template_hash)
        seen["metadata"]["creationTimestamp"] = (this_moment() - timedelta(seconds=seconds)).isoformat()
        made.pods.observe(seen, now=100.0)
    assert [pod.name for pod in made.late_pods(100.0)] == ["a"]
