"""Pods of owners in memory: who gets them, when they end, and who gives up a place in a full pool."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.test_pod_cache import item
from tests.unit.operator.test_pool import plan, pool

from mcp_exec_api.code_execution import Priority
from mcp_exec_api.files import Owner
from mcp_exec_api.meta import micro_time, now
from mcp_exec_operator.core.pods.pod import Pod, PodState
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.core.pools.reuse import OwnerShares, max_idle_pods
from mcp_exec_operator.core.queueing.wait_queue import Waiter

REUSE = {"scope": "Owner", "maxUses": 10}
ALICE, BOB, CAROL, EVE = (Owner(namespace="agents", caller=name) for name in ("alice", "bob", "carol", "eve"))


def reusing(**spec: Any) -> Pool:
    return pool(**{"warm": {"min": 0}, "reuse": REUSE, **spec})


def use(made: Pool, owner: Owner, name: str) -> Pod:
    """Bind a new pod of that name to an execution of the owner."""
    made.pods.observe(item(name, template=made.shape.template_hash), now=0)
    made.mark_ready(name)
    pod = made.take(owner)
    assert pod is not None
    pod.use.owner, pod.use.caller, pod.use.count, pod.use.owned_since = owner.digest, owner.caller, 1, made.clock()
    return pod


def join(made: Pool, owner: Owner, **options: Any) -> Waiter:
    return made.join(caller=owner.caller, owner=owner, **options)


async def test_an_unused_pod_of_an_owner_goes_back_to_it() -> None:
    made = reusing()
    pod = use(made, ALICE, "p1")
    made.release(pod)
    assert pod.state is PodState.OWNED
    waiter = join(made, ALICE)
    assert made.take(ALICE) is pod
    made.release(pod)
    assert waiter.future.result() is pod


@pytest.mark.parametrize("priority", Priority)
async def test_no_priority_of_an_owner_starves_by_its_own_pods(priority: Priority) -> None:
    made = reusing(maxPods=1)
    pod = use(made, ALICE, "p1")
    waiter = join(made, ALICE, priority=priority)
    for served in range(30):  # noqa: B007
        join(made, ALICE, priority=Priority.HIGH)
        made.give_back(pod)
        if waiter.future.done():
            break
    assert served < 12


async def test_others_get_the_place_of_an_owner_above_its_share_and_no_more() -> None:
    made = reusing(maxPods=4)
    pods = [use(made, ALICE, f"p{number}") for number in range(4)]
    alice = [join(made, ALICE) for _ in range(8)]
    bob = [join(made, BOB) for _ in range(8)]
    kept = [made.give_back(pod) for pod in pods]
    # two of four places are each one's share
    assert kept == [False, False, True, True]
    assert [waiter.future.done() for waiter in alice[:3]] == [True, True, False]
    assert not any(waiter.future.done() for waiter in bob)


async def test_a_pod_that_an_earlier_operator_left_serves_its_waiting_owner_in_a_full_pool() -> None:
    made = reusing(maxPods=1)
    pod = use(made, ALICE, "p1")
    pod.use.caller = ""  # unknown
    waiter = join(made, ALICE)
    assert made.give_back(pod)
    assert waiter.future.result() is pod


async def test_users_of_one_caller_share_what_the_caller_may_have() -> None:
    made = reusing(maxPods=4)
    one, two = (Owner(namespace="agents", caller="alice", user=user) for user in ("one", "two"))
    pods = [use(made, one, f"p{number}") for number in range(2)] + [use(made, two, f"q{number}") for number in range(2)]
    for owner in (one, two, BOB):
        for _ in range(8):
            join(made, owner)
    # one of four places is left for each user of the caller, who shares them with another caller
    assert [made.give_back(pod) for pod in pods] == [False, False, False, True]


async def test_a_higher_priority_of_others_comes_first_in_a_full_pool() -> None:
    made = reusing(maxPods=1)
    pod = use(made, ALICE, "p1")
    join(made, ALICE, priority=Priority.LOW)
    join(made, BOB, priority=Priority.HIGH)
    assert not made.give_back(pod)


async def test_an_idle_pod_is_evicted_for_others_in_a_full_pool_the_oldest_first() -> None:
    times = iter(range(1000))
    made = reusing(maxPods=3)
    made.clock = lambda: float(next(times))
    pods = [use(made, owner, f"p{number}") for number, owner in enumerate((ALICE, BOB, CAROL))]
    for pod in pods:
        pod.use.owned_since = 0.0
        assert made.give_back(pod)
    assert plan(made, now=made.clock()).delete == ()
    join(made, EVE)
    assert plan(made, now=made.clock()).delete == (pods[0],)
    made.pods.retire(pods[0])
    assert plan(made, now=made.clock()).delete == ()


async def test_idle_pods_do_not_take_the_places_of_warm_ones() -> None:
    made = reusing(maxPods=2, warm={"min": 2})
    pod = use(made, ALICE, "p1")
    assert made.give_back(pod)
    assert plan(made, now=made.clock()).delete == (pod,)


async def test_one_owner_keeps_half_of_a_pool_at_most() -> None:
    made = reusing(maxPods=6)
    pods = [use(made, ALICE, f"p{number}") for number in range(5)]
    assert made.shape.spec is not None
    assert [made.give_back(pod) for pod in pods] == [True] * 3 + [False] * 2
    assert max_idle_pods(made.shape.spec) == 3


@pytest.mark.parametrize(
    ("change", "template", "reason"),
    [
        ({"count": 10}, "", "maxUses are reached"),
        ({"owned_since": -4000.0}, "", "maxAgeSeconds have passed"),
        ({}, "another", "the pool's template has changed"),
        ({"owner": ""}, "", "it has no owner"),
        ({}, "", ""),
    ],
)
async def test_limits_end_the_life_of_a_pod(change: dict[str, Any], template: str, reason: str) -> None:
    made = reusing()
    pod = use(made, ALICE, "p1")
    pod.use.owned_since = 0.0
    for name, value in change.items():
        setattr(pod.use, name, value)
    if template:
        made.pods.observe(item("p1", template=template), now=1.0)
    made.clock = lambda: 1.0
    assert made.reuse.reason_to_end(pod, now=1.0) == reason
    assert made.give_back(pod) is not bool(reason)


def watched(**spec: Any) -> tuple[Pool, list[float]]:
    """Return a pool that reuses pods, and its clock."""
    times = [100.0]
    made = reusing(**spec)
    made.clock = lambda: times[0]
    return made, times


async def test_no_pod_is_created_for_an_owner_whose_pod_comes_back_at_once() -> None:
    made, times = watched()
    use(made, ALICE, "p1")
    join(made, ALICE)
    assert plan(made, times[0]).create == 0
    assert made.uses.unserved.until == 100.25
    bob = join(made, BOB)
    assert plan(made, times[0]).create == 1
    made.leave(bob)
    times[0] += 0.25  # it runs for longer than a pod may take that comes back soon
    assert plan(made, times[0]).create == 1


async def test_pods_are_created_for_what_the_pods_of_an_owner_cannot_serve_soon() -> None:
    made, times = watched(maxPods=20)
    pod = use(made, ALICE, "p1")
    for _ in range(6):
        join(made, ALICE)
    assert plan(made, times[0]).create == 5
    for _ in range(100):  # each use takes 50 ms: five fit into a quarter of a second
        times[0] += 0.05
        join(made, ALICE)
        pod.use.count = 1
        assert made.give_back(pod)
    assert plan(made, times[0]).create == 1


async def test_no_execution_waits_for_pods_that_are_usually_busy_for_long() -> None:
    made, times = watched()
    pod = use(made, ALICE, "p1")
    times[0] += 10
    assert made.give_back(pod)
    assert made.take(ALICE) is pod
    join(made, ALICE)
    assert plan(made, times[0]).create == 1


async def test_a_pod_on_its_last_use_is_not_expected_back() -> None:
    made, times = watched()
    use(made, ALICE, "p1").use.count = 10
    join(made, ALICE)
    assert plan(made, times[0]).create == 1


async def test_pods_that_start_are_kept_while_executions_wait_for_pods_that_come_back() -> None:
    made, times = watched()
    pod = use(made, ALICE, "p1")
    first, second = join(made, ALICE), join(made, ALICE)
    made.pods.add_expectation("p2", template=made.shape.template_hash, now=times[0])
    made.pods.confirm_created("p2", uid="p2", now=times[0])
    assert made.give_back(pod)
    assert (first.future.done(), second.future.done()) == (True, False)
    assert plan(made, times[0]).delete == ()


async def test_executions_that_wait_for_pods_of_their_owner_are_no_demand_for_new_ones() -> None:
    made, times = watched(warm={"min": 0, "max": 50}, scaling={"headroom": 0}, maxPods=100)
    pod = use(made, ALICE, "p1")
    for _ in range(200):
        join(made, ALICE)
        times[0] += 0.02
        pod.use.count = 1
        assert made.give_back(pod)
    measured = made.supply.autoscaler.demand.measure(times[0])
    assert (measured.rate, measured.reuse_rate) == (0.1, 1.0)  # the first one only
    plan(made, times[0])
    assert made.desired <= 1


async def test_an_idle_pod_gives_way_before_a_new_owner_waits() -> None:
    made, times = watched(maxPods=3)
    pods = [use(made, owner, f"p{number}") for number, owner in enumerate((ALICE, BOB, CAROL))]
    for pod in pods:
        times[0] += 1
        assert made.give_back(pod)
    assert plan(made, times[0]).delete == (), "owners that take turns keep their pods"
    times[0] += 58
    assert plan(made, times[0]).delete == (pods[0],)
    made.pods.retire(pods[0])
    times[0] += 60
    assert plan(made, times[0]).delete == (), "one place is enough"
    made.pods.forget("p0")
    join(made, EVE)
    assert plan(made, times[0]).create == 1
    assert plan(made, times[0]).delete == ()


def observe_deletion(made: Pool, pod: Pod, *, seconds_ago: float) -> None:
    body = item(pod.name)
    body["metadata"]["deletionTimestamp"] = micro_time(now() - timedelta(seconds=seconds_ago))
    made.pods.observe(body, now=made.clock())


async def test_an_idle_pod_gives_way_to_a_new_owner_although_a_deleted_pod_does_not_go() -> None:
    made, times = watched(maxPods=2)
    idle, stuck = use(made, ALICE, "p1"), use(made, BOB, "p2")
    assert made.give_back(idle)
    made.pods.retire(stuck)
    join(made, EVE)
    observe_deletion(made, stuck, seconds_ago=0)
    assert plan(made, times[0]).delete == (), "its place is soon free"
    observe_deletion(made, stuck, seconds_ago=11)
    assert plan(made, times[0]).delete == (idle,)


async def test_the_only_idle_pod_of_a_full_pool_is_kept() -> None:
    made, times = watched(maxPods=1)
    pod = use(made, ALICE, "p1")
    assert made.give_back(pod)
    times[0] += 100
    assert plan(made, times[0]).delete == ()


OWNERS = st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"))


@given(held=st.lists(OWNERS, max_size=12), waiting=st.lists(OWNERS, max_size=12))
def test_whoever_waits_gets_a_share_in_the_end(held: list[tuple[str, str]], waiting: list[tuple[str, str]]) -> None:
    """Whoever waits and has less than a share: somebody of a full pool gives a place up."""
    shares = OwnerShares(places=len(held))
    shares.held.update(held)
    shares.waiting.update(waiting)
    callers = {caller for caller, _ in [*held, *waiting]}
    for caller, owner in set(waiting):
        of_caller = sum(number for (each, _), number in shares.held.items() if each == caller)
        if held and of_caller < int(len(held) / len(callers)):
            assert any(shares.exceeds(*each) for each in set(held) if each[0] != caller), owner
