"""Rolling replacement of idle pods: order and steps."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.test_pod_cache import item

from mcp_exec_operator.core.pods.nodes import NodeCache
from mcp_exec_operator.core.pods.pod import Pod, PodCounts, PodState, SeenPod
from mcp_exec_operator.core.scaling.plan import (
    OutdatedPod,
    OutdatedReason,
    excess_pods,
    find_outdated,
    most_urgent_first,
    plan_rollout,
    pods_to_create,
    share_of_age,
)

MOMENT = datetime(2026, 11, 21, 20, tzinfo=UTC)


def pod(name: str, *, template: str = "new", age: float = 0, node: str = "n1") -> Pod:
    newest = item(name, template=template, node=node)
    newest["metadata"]["creationTimestamp"] = (MOMENT - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Pod(name=name, state=PodState.WARM, seen=SeenPod().observe(newest))


def old(*names: str, why: OutdatedReason = OutdatedReason.TEMPLATE) -> list[OutdatedPod]:
    return [OutdatedPod(pod=pod(name), reason=why, message=f"for {why.name}") for name in names]


def find(
    *pods: Pod, nodes: NodeCache | None = None, max_age: float | None = None, later: float = 0
) -> list[OutdatedPod]:
    moment = MOMENT + timedelta(seconds=later)
    found = [
        find_outdated(
            each,
            template_hash="new",
            has_former_key=each.name == "former",
            max_age=max_age,
            nodes=nodes or NodeCache(),
            age=each.age(1000.0 + later, moment),
        )
        for each in pods
    ]
    return most_urgent_first(each for each in found if each is not None)


def test_a_pod_is_outdated_by_its_node_its_template_its_key_or_its_age_the_most_urgent_first() -> None:
    nodes = NodeCache()
    nodes.observe({"metadata": {"name": "n2"}, "spec": {"unschedulable": True}}, deleted=False)
    pods = [
        pod("fresh"),
        pod("aged", age=100),
        pod("former", age=100),
        pod("other", template="old"),
        pod("away", node="n2", age=100),
    ]
    found = find(*pods, nodes=nodes, max_age=100)
    assert [(each.pod.name, each.reason) for each in found] == [
        ("away", OutdatedReason.NODE),
        ("other", OutdatedReason.TEMPLATE),
        ("former", OutdatedReason.KEY),
        ("aged", OutdatedReason.AGE),
    ]
    assert [each.pod.name for each in find(pod("aged", age=10**6))] == []


def test_the_ages_at_which_pods_go_are_spread_and_none_is_above_the_highest() -> None:
    shares = [share_of_age(f"default-{number}") for number in range(500)]
    assert all(0.8 <= share <= 1 for share in shares)
    assert max(sum(low <= share < low + 0.02 for share in shares) for low in (0.8, 0.84, 0.88, 0.92, 0.96)) < 100
    made = [pod(f"default-{number}") for number in range(100)]
    assert find(*made, max_age=100, later=79) == []
    assert 0 < len(find(*made, max_age=100, later=90)) < 100
    assert len(find(*made, max_age=100, later=100)) == 100


@pytest.mark.parametrize(
    ("desired", "outdated", "extra"),
    [(3, 3, 1), (50, 50, 5), (50, 2, 2), (3, 0, 0), (0, 3, 0)],
)
def test_a_tenth_of_the_pods_is_replaced_at_a_time(desired: int, outdated: int, extra: int) -> None:
    found = old(*map(str, range(outdated)))
    counts = PodCounts(warm=desired)
    assert plan_rollout(outdated=found, not_ready=[], counts=counts, required=desired, max_pods=100).surge == extra


def test_pods_that_are_old_alone_are_replaced_one_at_a_time() -> None:
    found = old(*map(str, range(50)), why=OutdatedReason.AGE)
    assert plan_rollout(outdated=found, not_ready=[], counts=PodCounts(warm=50), required=50, max_pods=100).surge == 1


@pytest.mark.parametrize(
    ("counts", "max_pods", "blocked", "why", "ending"),
    [
        (PodCounts(warm=2), 10, "", OutdatedReason.TEMPLATE, 0),
        (PodCounts(warm=2, starting=1), 10, "", OutdatedReason.TEMPLATE, 0),
        (PodCounts(warm=3), 10, "", OutdatedReason.TEMPLATE, 1),
        # the pool can have no pod more, ever
        (PodCounts(warm=2), 2, "", OutdatedReason.TEMPLATE, 1),
        (PodCounts(warm=2), 2, "", OutdatedReason.AGE, 1),
        (PodCounts(warm=1, terminating=1), 2, "", OutdatedReason.TEMPLATE, 0),
        # others take the room for now
        (PodCounts(warm=2, busy=8), 10, "", OutdatedReason.TEMPLATE, 0),
        # nodes or a quota leave no room: a place given up may help
        (PodCounts(warm=2, starting=1), 10, "0/1 nodes are available", OutdatedReason.TEMPLATE, 1),
        (PodCounts(warm=2), 10, "exceeded quota", OutdatedReason.TEMPLATE, 1),
        (PodCounts(warm=1, starting=2), 10, "0/1 nodes are available", OutdatedReason.TEMPLATE, 0),
        (PodCounts(warm=2, starting=1), 10, "0/1 nodes are available", OutdatedReason.NODE, 0),
        (PodCounts(warm=2, starting=1), 10, "0/1 nodes are available", OutdatedReason.AGE, 0),
    ],
)
def test_a_pod_goes_when_another_stands_in_its_place_or_none_ever_could(
    counts: PodCounts, max_pods: int, blocked: str, why: OutdatedReason, ending: int
) -> None:
    found = plan_rollout(
        outdated=old("a", "b", why=why), not_ready=[], counts=counts, required=2, max_pods=max_pods, blocked=blocked
    )
    assert len(found.delete) == ending
    assert blocked in found.message
    assert ("maxPods leaves no room" in found.message) is (max_pods == 2)
    assert f"for {why.name}" in found.message


@pytest.mark.parametrize(
    ("counts", "max_pods", "ending"),
    [
        (PodCounts(warm=2, not_ready=2), 10, 2),
        (PodCounts(warm=1, starting=1, not_ready=2), 10, 0),
        (PodCounts(not_ready=2), 10, 0),
        (PodCounts(not_ready=2), 2, 2),
        (PodCounts(starting=1, not_ready=2), 3, 1),
    ],
)
def test_unfit_pods_go_when_others_stand_in_their_place_or_need_it(
    counts: PodCounts, max_pods: int, ending: int
) -> None:
    unfit = [pod("a"), pod("b")]
    found = plan_rollout(outdated=[], not_ready=unfit, counts=counts, required=2, max_pods=max_pods)
    assert len(found.delete) == ending
    assert "not ready any more" in found.message


@dataclass
class Rolling:
    """A pool whose pods are all outdated, in steps of anything that can happen to it."""

    desired: int
    max_pods: int
    warm_old: int
    warm_new: int = 0
    starting: int = 0
    terminating: int = 0
    least: int = field(init=False)

    def __post_init__(self) -> None:
        self.least = self.warm_old

    @property
    def counts(self) -> PodCounts:
        return PodCounts(warm=self.warm_old + self.warm_new, starting=self.starting, terminating=self.terminating)

    def keep(self) -> None:
        """Reconcile once."""
        many = excess_pods(warm=self.desired + self.decision().surge, waiting=0, counts=self.counts)
        assert many == 0
        self.warm_old -= len(self.decision().delete)
        self.terminating += len(self.decision().delete)
        self.starting += pods_to_create(
            warm=self.desired + self.decision().surge, max_pods=self.max_pods, cold_starts=0, counts=self.counts
        )
        self.least = min(self.least, self.counts.warm)
        assert self.counts.total <= self.max_pods

    def decision(self) -> Any:
        found = old(*map(str, range(self.warm_old)))
        return plan_rollout(
            outdated=found, not_ready=[], counts=self.counts, required=self.desired, max_pods=self.max_pods
        )


@given(st.integers(1, 60), st.integers(0, 8), st.data())
def test_a_roll_ends_and_never_leaves_fewer_warm_than_there_should_be(
    desired: int, room: int, data: st.DataObject
) -> None:
    pool = Rolling(desired=desired, max_pods=desired + room, warm_old=desired)
    for _ in range(40 * desired + 40):
        pool.keep()
        if not (pool.starting or pool.terminating):
            break
        if pool.starting and (not pool.terminating or data.draw(st.booleans())):
            pool.starting, pool.warm_new = pool.starting - 1, pool.warm_new + 1
        else:
            pool.terminating -= 1
    assert (pool.warm_old, pool.warm_new, pool.starting, pool.terminating) == (0, desired, 0, 0)
    # without room for one more, it is one fewer; with it, never
    assert pool.least == (desired if room else desired - 1)
