"""Leader election: one holder at a time, measured by the own clock, and released early."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.component.operator.conftest import settings
from tests.support.api_server import Fault
from tests.support.clock import Clock
from tests.support.pace import paced
from tests.support.world import LEASES, World

from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.cluster.leader_election import LeaderElector, LeaseLost

Contend = Callable[..., LeaderElector]
NAME = "mcp-exec-operator"
OURS = "pod-a_1"


def lease(world: World) -> Object:
    found: Object = world.collections[LEASES][NAME]["spec"]
    return found


def holder(world: World) -> str:
    return str(lease(world).get("holderIdentity"))


async def test_the_first_to_ask_makes_the_lease_and_leads(world: World, contend: Contend) -> None:
    first, second = contend("pod-a"), contend("pod-b")
    assert await first.try_acquire_or_renew()
    assert not await second.try_acquire_or_renew()
    assert (first.is_leader, second.is_leader, second.holder) == (True, False, OURS)
    assert (lease(world)["leaseDurationSeconds"], lease(world)["leaseTransitions"]) == (1, 0)
    assert [each.metrics.registry.get_sample_value("mcp_exec_leader") for each in (first, second)] == [1, 0]


async def test_of_two_that_make_it_at_once_one_leads(world: World, contend: Contend) -> None:
    both = [contend("pod-a"), contend("pod-b")]
    took = await asyncio.gather(*(each.try_acquire_or_renew() for each in both))
    again = await asyncio.gather(*(each.try_acquire_or_renew() for each in both))
    assert sum(took) == 1
    assert again == took


async def test_a_lease_that_is_renewed_is_never_taken_whatever_time_is_written_in_it(
    world: World, contend: Contend
) -> None:
    clock = Clock()
    leader, standby = contend("pod-a"), contend("pod-b", clock=clock)
    for year in (1999, 2999, 1999, 2999):
        assert await leader.try_acquire_or_renew()
        world.merge(LEASES, NAME, {"spec": {"renewTime": f"{year}-01-01T00:00:00.000000Z"}})
        assert not await standby.try_acquire_or_renew()
        clock.now += 0.9
    assert await leader.try_acquire_or_renew()
    assert not await standby.try_acquire_or_renew()


async def test_a_lease_that_is_not_renewed_is_taken_after_its_duration_and_no_earlier(
    world: World, contend: Contend
) -> None:
    clock = Clock()
    leader, standby = contend("pod-a"), contend("pod-b", clock=clock)
    assert await leader.try_acquire_or_renew()
    world.merge(LEASES, NAME, {"spec": {"renewTime": "1999-01-01T00:00:00.000000Z"}})
    assert not await standby.try_acquire_or_renew()
    clock.now += 0.9
    assert not await standby.try_acquire_or_renew()
    clock.now += 0.2
    assert await standby.try_acquire_or_renew()
    assert (holder(world), lease(world)["leaseTransitions"]) == ("pod-b_1", 1)


async def test_the_duration_that_its_holder_promised_counts(world: World, contend: Contend) -> None:
    clock = Clock()
    standby = contend("pod-b", clock=clock)
    assert await contend("pod-a", lease_duration_seconds=2).try_acquire_or_renew()
    assert not await standby.try_acquire_or_renew()
    clock.now += 1.9
    assert not await standby.try_acquire_or_renew()
    clock.now += 0.2
    assert await standby.try_acquire_or_renew()


async def test_a_standby_takes_a_lease_over_once_it_has_expired(world: World, contend: Contend) -> None:
    assert await contend("pod-a").try_acquire_or_renew()
    async with asyncio.timeout(paced(10)):
        await contend("pod-b").wait_until_leader()
    assert holder(world) == "pod-b_1"


async def test_a_lease_that_is_given_up_is_taken_at_once(world: World, contend: Contend) -> None:
    hours = {"lease_duration_seconds": 3600, "lease_renew_seconds": 1800, "lease_retry_seconds": 900}
    leader, standby = contend("pod-a", **hours), contend("pod-b", **hours)
    assert await leader.try_acquire_or_renew()
    waiting = asyncio.create_task(standby.wait_until_leader())
    async with leader.holding():
        await world.until_asked(lambda: any("watch" in seen.query for seen in world.seen))
    assert not leader.is_leader
    async with asyncio.timeout(paced(5)):
        await waiting
    assert holder(world) == "pod-b_1"


async def test_a_lease_that_was_given_up_names_nobody(world: World, contend: Contend) -> None:
    leader = contend("pod-a")
    assert await leader.try_acquire_or_renew()
    await leader.release()
    assert "holderIdentity" not in lease(world)
    assert lease(world)["leaseTransitions"] == 0


async def test_who_does_not_hold_it_gives_up_nothing(world: World, contend: Contend) -> None:
    leader, standby = contend("pod-a"), contend("pod-b")
    assert await leader.try_acquire_or_renew()
    await standby.release()
    assert holder(world) == OURS


async def test_a_process_started_again_in_its_pod_need_not_wait_for_itself(world: World, contend: Contend) -> None:
    assert await contend("pod-a", lease_duration_seconds=3600).try_acquire_or_renew()
    taken_at = lease(world)["acquireTime"]
    assert await contend("pod-a").try_acquire_or_renew()
    assert (lease(world)["acquireTime"], lease(world)["leaseTransitions"]) == (taken_at, 0)


async def test_a_conflict_is_read_and_the_lease_renewed(world: World, contend: Contend) -> None:
    leader = contend("pod-a")
    assert await leader.try_acquire_or_renew()
    world.merge(LEASES, NAME, {"metadata": {"labels": {"looked": "at"}}})
    before = lease(world)["renewTime"]
    assert await leader.try_acquire_or_renew()
    assert lease(world)["renewTime"] > before


async def test_a_lease_that_somebody_deleted_is_made_again(world: World, contend: Contend) -> None:
    leader = contend("pod-a")
    assert await leader.try_acquire_or_renew()
    world.remove(LEASES, NAME)
    assert await leader.try_acquire_or_renew()
    assert holder(world) == OURS


@pytest.mark.parametrize("what", [429, 500, 503, "lost before", "lost after", "busy after"])
async def test_a_renewal_that_fails_is_tried_again_in_time(world: World, contend: Contend, what: Any) -> None:
    leader = contend("pod-a", lease_duration_seconds=30, lease_renew_seconds=20)
    assert await leader.try_acquire_or_renew()
    world.faults += [Fault("PATCH", NAME, what)] * 2
    async with leader.holding() as renewing:
        await world.until(lambda: not world.faults)
        before = lease(world)["renewTime"]
        await world.until(lambda: lease(world)["renewTime"] > before)
        assert not renewing.done()
        assert leader.is_leader


async def test_a_leader_that_another_has_replaced_knows_it_at_its_next_renewal(world: World, contend: Contend) -> None:
    leader = contend("pod-a")
    assert await leader.try_acquire_or_renew()
    async with leader.holding() as renewing:
        world.merge(LEASES, NAME, {"spec": {"holderIdentity": "pod-b_1"}})
        await asyncio.wait({renewing}, timeout=5)
        with pytest.raises(LeaseLost, match="pod-b_1 holds the lease"):
            renewing.result()
    assert not leader.is_leader
    assert holder(world) == "pod-b_1"


async def test_a_leader_that_can_not_renew_has_lost_before_another_may_take_it(world: World, contend: Contend) -> None:
    clock = Clock()
    leader, standby = contend("pod-a"), contend("pod-b", clock=clock)
    assert await leader.try_acquire_or_renew()
    assert not await standby.try_acquire_or_renew()
    async with leader.holding() as renewing:
        world.go_away()
        await asyncio.wait({renewing}, timeout=paced(10))
        assert not leader.is_leader
        with pytest.raises(LeaseLost, match=r"not renewed for 0\.6 s: the lease mcp-exec-operator can't be used"):
            renewing.result()
    world.away = False
    clock.now += leader.config.renew_seconds
    assert not await standby.try_acquire_or_renew()
    clock.now += 0.5
    assert await standby.try_acquire_or_renew()


async def test_an_error_of_the_api_server_is_the_problem(world: World, contend: Contend) -> None:
    leader = contend("pod-a")
    world.faults.append(Fault("GET", NAME, 403, message="leases is forbidden", reason="Forbidden"))
    assert not await leader.try_acquire_or_renew()
    assert leader.problem == "the lease mcp-exec-operator can't be used: 403 Forbidden: leases is forbidden"
    assert await leader.try_acquire_or_renew()
    assert leader.problem == ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lease_duration_seconds": 10}, "less than lease_duration_seconds, which is 10"),
        ({"lease_renew_seconds": 2}, "less than lease_renew_seconds, which is 2"),
        ({"lease_retry_seconds": 11}, "less than lease_renew_seconds, which is 10"),
        ({"lease_duration_seconds": 0}, "greater than or equal to 1"),
    ],
)
def test_times_that_do_not_fit_are_refused(changes: Object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        settings(**changes)
