"""Executions that wait for a pod: who is next, what they and their pool say meanwhile, and what a full queue does."""

from collections.abc import Callable
from typing import Any

from tests.support.world import CEX, World

Operating = Callable[..., Any]


async def occupy(world: World) -> None:
    """Bind the pool's only pod to an execution that runs until `release` is set."""
    world.execution("first", "wait")
    await world.until(lambda: len(world.ran) == 1)


async def queued(world: World, count: int) -> None:
    """Return when so many executions wait, in the order of their creation, which is the order of watch events."""
    await world.until(lambda: world.pool_status().get("queued") == count)


async def test_what_waits_says_where_it_stands_and_no_more_when_it_is_bound(world: World, operating: Operating) -> None:
    world.pool(maxPods=1)
    async with operating() as operator:
        await occupy(world)
        world.execution("second")
        world.execution("third")
        await world.until(lambda: world.status("third").get("queue"))
        waiting = world.status("third")
        world.release.set()
        status = await world.finished("third")
        await world.until(lambda: world.pool_status().get("queued") == 0)
        writes = operator.writes()
    assert (waiting["phase"], waiting["reason"]) == ("Pending", "PoolAtCapacity")
    assert waiting["queue"] == {"position": 2, "of": 2}
    (bound,) = waiting["conditions"]
    assert (bound["type"], bound["status"]) == ("Bound", "False")
    assert bound["message"] == "the pool has 1 of at most 1 pods; position 2 of 2"
    assert status["phase"] == "Succeeded"
    assert not {"queue", "reason"} & set(status)
    assert writes["pending"] <= 2
    assert "expectedWaitSeconds" not in world.pool_status()


async def test_an_execution_that_finds_the_queue_full_ends_so(world: World, operating: Operating) -> None:
    world.pool(maxPods=1, maxQueued=1)
    async with operating():
        await occupy(world)
        world.execution("second")
        world.execution("third")
        status = await world.finished("third")
        world.release.set()
        assert (await world.finished("second"))["phase"] == "Succeeded"
    assert (status["phase"], status["reason"], status["error"]["type"]) == ("Failed", "QueueFull", "QueueFull")
    assert "1 executions wait for a pod, of 1 that may" in status["error"]["message"]
    assert "1 of at most 1 pods" in status["error"]["message"]
    assert "queue" not in status


async def test_callers_take_turns_and_priority_comes_first(world: World, operating: Operating) -> None:
    world.pool(maxPods=1)
    async with operating():
        await occupy(world)
        a1, a2 = (world.execution(name, caller="a") for name in ("a1", "a2"))
        b1 = world.execution("b1", caller="b")
        kubectl = world.execution("kubectl")
        low = world.execution("low", caller="c", priority="Low")
        high = world.execution("high", caller="a", priority="High")
        await queued(world, 6)
        world.release.set()
        await world.finished("low")
    assert world.ran[1:] == [high, a1, b1, kubectl, a2, low]


async def test_a_pool_tells_how_long_its_queue_takes_once_it_knows(world: World, operating: Operating) -> None:
    world.pool(maxPods=1)
    async with operating():
        await occupy(world)
        for number in range(4):
            world.execution(f"e{number}")
        world.execution("long", "wait", priority="Low")
        world.execution("last", priority="Low")
        await queued(world, 6)
        world.release.set()
        world.release.clear()  # the long one waits again
        await world.until(lambda: "expectedWaitSeconds" in world.pool_status())
        said = world.pool_status()
        world.release.set()
        await world.finished("last")
        await queued(world, 0)
    assert said["queued"] > 0
    assert said["expectedWaitSeconds"] >= 0
    assert "expectedWaitSeconds" not in world.pool_status()


async def test_a_pool_without_warm_pods_says_what_keeps_it_from_serving(world: World, operating: Operating) -> None:
    message = 'pods "x" is forbidden: exceeded quota: sandboxes, requested: pods=1, used: pods=3'
    world.refuse_pods = (403, message)
    world.pool(warm={"min": 0})
    async with operating():
        await world.until(lambda: world.condition("Ready").get("status") == "True")
        world.execution("waits")
        await world.until(lambda: world.condition("Ready").get("reason") == "QuotaExceeded")
        await world.until(lambda: world.status("waits").get("reason") == "QuotaExceeded")
        assert world.condition("Ready")["status"] == "False"
        world.refuse_pods = None
        assert (await world.finished("waits"))["phase"] == "Succeeded"
        await world.until(lambda: world.condition("Ready").get("status") == "True")


async def test_one_that_is_cancelled_while_it_waits_makes_room(world: World, operating: Operating) -> None:
    world.pool(maxPods=1, maxQueued=2)
    async with operating():
        await occupy(world)
        world.execution("second")
        third = world.execution("third")
        await queued(world, 2)
        world.merge(CEX, "second", {"spec": {"cancelRequested": True}})
        assert (await world.finished("second"))["phase"] == "Cancelled"
        fourth = world.execution("fourth")
        world.release.set()
        assert (await world.finished("fourth"))["phase"] == "Succeeded"
    assert world.ran[1:] == [third, fourth]


async def test_a_new_operator_takes_up_the_queue_and_repeats_nothing(world: World, operating: Operating) -> None:
    world.pool(maxPods=1)
    async with operating():
        await occupy(world)
        world.execution("second")
        await world.until(lambda: world.status("second").get("queue"))
    told = world.status("second")
    async with operating() as operator:
        await world.until(lambda: len(operator.part.pools.get(("agents", "default")).queue))
        await world.until(lambda: world.pool_status().get("queued") == 1)
        assert world.status("second") == told
        world.release.set()
        assert (await world.finished("second"))["phase"] == "Succeeded"
        assert "pending" not in operator.writes()
