"""The number of warm pods follows demand, through the API server."""

from collections.abc import Callable
from typing import Any

from tests.support.world import SBP, World

Operating = Callable[..., Any]

QUICK = {"headroom": 1, "stableSeconds": 0, "fastWindowSeconds": 1, "slowWindowSeconds": 1}
PATIENT = {"headroom": 1, "stableSeconds": 600, "fastWindowSeconds": 1, "slowWindowSeconds": 600}


def status(world: World) -> dict[str, Any]:
    return world.collections[SBP]["default"].get("status") or {}


async def test_a_burst_makes_a_pool_grow_and_it_shrinks_after(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 1, "max": 6}, scaling=PATIENT | {"headroom": 3})
    async with operating() as operator:
        await world.warm(1)
        for index in range(8):
            world.execution(f"burst-{index}")
        for index in range(8):
            assert (await world.finished(f"burst-{index}"))["phase"] == "Succeeded"
        await world.until(lambda: 4 <= status(world)["warm"] == status(world)["desired"] <= 6)
        assert status(world)["startupP95"] > 0
        world.merge(SBP, "default", {"metadata": {"generation": 2}, "spec": {"scaling": QUICK}})
        await world.until(lambda: status(world)["desired"] == len(world.pods()) == status(world)["warm"] == 1)
        said = operator.metrics.registry.get_sample_value(
            "mcp_exec_pool_desired", {"namespace": "agents", "pool": "default"}
        )
    assert said == 1
    assert world.condition("Scaled")["reason"] == "AtMinimum"
    assert "warmHitRate" not in status(world)


async def test_a_pool_of_no_pods_makes_one_for_who_comes_and_keeps_warm_for_the_next(
    world: World, operating: Operating
) -> None:
    world.pool(warm={"min": 0, "max": 3}, scaling=PATIENT)
    async with operating():
        await world.until(lambda: world.condition("Ready").get("status") == "True")
        assert (world.pods(), status(world)["desired"]) == ({}, 0)
        world.execution("first")
        assert (await world.finished("first"))["start"] == "Cold"
        await world.until(lambda: status(world).get("warm", 0) >= 2)
        world.execution("second")
        assert (await world.finished("second"))["start"] == "Warm"
        await world.until(lambda: status(world).get("warmHitRate") == 0.5)
        assert "arrive and a pod takes" in world.condition("Scaled")["message"]


async def test_an_idle_pool_goes_back_to_no_pods(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 0, "max": 3}, scaling=QUICK, onEmpty="Wait")
    async with operating():
        world.execution("only")
        assert (await world.finished("only"))["phase"] == "Succeeded"
        await world.until(lambda: not world.pods() and status(world).get("desired") == 0)


async def test_a_new_operator_keeps_as_many_pods_as_were_desired(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 0, "max": 5}, scaling=PATIENT)
    async with operating():
        world.execution("first")
        await world.finished("first")
        await world.until(lambda: 2 <= status(world).get("warm", 0) == status(world)["desired"])
        await world.sealed()
        pods = set(world.pods())
    async with operating():
        await world.until(lambda: world.condition("Scaled").get("reason") == "Stabilizing")
        world.execution("next")
        assert (await world.finished("next"))["podName"] in pods


async def test_kubectl_scale_lifts_the_pool_at_once_even_over_its_maximum(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 1, "max": 2}, scaling=PATIENT)
    async with operating():
        await world.warm(1)
        world.merge(SBP, "default", {"metadata": {"generation": 2}, "spec": {"warm": {"min": 4}}})
        await world.warm(4)
        assert status(world)["desired"] == 4
        world.merge(SBP, "default", {"metadata": {"generation": 3}, "spec": {"warm": {"min": 0}}})
        await world.until(lambda: not world.pods() and status(world).get("desired") == 0)


async def test_a_maximum_that_does_not_fit_the_pool_is_told(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 1, "max": 20}, maxPods=10)
    async with operating():
        await world.until(lambda: world.condition("Ready").get("status") == "False")
    assert "warm.max is 20; it must not be more than maxPods, which is 10" in world.condition("Ready")["message"]


async def test_refill_goes_on_by_itself_as_fast_as_it_may(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 3}, scaling={"refillPerSecond": 4, "refillBurst": 1})
    async with operating(resync_seconds=600):
        await world.until(lambda: len(world.pods()) == 1)
        await world.warm(3)
