"""Variants of a pool, through the API server: shares, sticky callers, rotation, and its restoration by hand."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.world import EVENTS, PODS, SBP, World

from mcp_exec_api.constants import ANNOTATION_RESTORE, ANNOTATION_VARIANT_KEY, LABEL_VARIANT
from mcp_exec_operator.variants.assignment import assign_variant

Operating = Callable[..., Any]

STABLE = {"name": "stable", "weight": 50}
NEXT = {"name": "next", "weight": 50, "image": "newer"}


def caller_of(variant: str, **weights: int) -> str:
    """A caller that is assigned to the variant."""
    given = weights or {"stable": 50, "next": 50}
    names = (f"caller-{index}" for index in range(1000))
    return next(name for name in names if assign_variant(name, given, pool="agents/default") == variant)


def kinds(world: World) -> Counter[tuple[str, str]]:
    """How many pods there are of each variant, with their image."""
    return Counter(
        (pod["metadata"]["labels"].get(LABEL_VARIANT, ""), pod["spec"]["containers"][0]["image"])
        for pod in world.pods().values()
    )


def variant(world: World, name: str) -> dict[str, Any]:
    found = world.pool_status().get("variants") or []
    return next((each for each in found if each["name"] == name), {})


def change(world: World, generation: int, **spec: Any) -> None:
    world.merge(SBP, "default", {"metadata": {"generation": generation}, "spec": spec})


def annotate(world: World, value: str | None) -> None:
    world.merge(SBP, "default", {"metadata": {"annotations": {ANNOTATION_RESTORE: value}}})


async def fail_pods_of(world: World, name: str, count: int) -> None:
    """So many pods of the variant end before they are ready, one after the other; those of others start."""
    failed: set[str] = set()
    started: set[str] = set()

    def new_pods() -> list[str]:
        return [each for each in world.pods() if each not in failed | started]

    while len(failed) < count:
        await world.until(new_pods)
        for each in new_pods():
            if world.pods()[each]["metadata"]["labels"].get(LABEL_VARIANT) == name:
                failed.add(each)
                ended = {"state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
                world.merge(PODS, each, {"status": {"phase": "Failed", "containerStatuses": [ended]}})
            else:
                started.add(each)
                await world.start_pod(each)


async def test_each_variant_has_its_share_of_warm_pods(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 4}, variants=[{"name": "stable", "weight": 75}, {**NEXT, "weight": 25}])
    async with operating():
        await world.warm(4)
        await world.until(lambda: variant(world, "next").get("warm") == 1)
    assert kinds(world) == {("stable", "sandbox"): 3, ("next", "newer"): 1}
    assert world.pool_status()["desired"] == 4
    assert variant(world, "stable")["inRotation"]
    assert "reason" not in variant(world, "stable")
    assert world.condition("VariantsHealthy")["status"] == "True"


async def test_a_caller_gets_the_same_variant_each_time_and_its_executions_say_which(
    world: World, operating: Operating
) -> None:
    world.pool(warm={"min": 4}, variants=[STABLE, NEXT])
    async with operating() as operator:
        await world.warm(4)
        for name in ("stable", "next"):
            for index in range(3):
                execution = f"{name}-{index}"
                world.execution(execution, caller=caller_of(name))
                assert (await world.finished(execution))["variant"] == name
        pool = {"namespace": "agents", "pool": "default", "variant": "next"}
        labels = {"phase": "Succeeded", "reason": "", "start": "Warm", **pool}
        await world.until(
            lambda: operator.metrics.registry.get_sample_value("mcp_exec_executions_total", labels) is not None
        )


async def test_an_annotation_chooses_the_key_that_assigns(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 2}, variants=[STABLE, NEXT])
    world.execution("chosen", "wait", caller=caller_of("stable"))
    keyed = {"metadata": {"annotations": {ANNOTATION_VARIANT_KEY: caller_of("next")}}}
    world.merge("/apis/mcp-exec.dev/v1alpha1/namespaces/agents/codeexecutions", "chosen", keyed)
    world.release.set()
    async with operating():
        assert (await world.finished("chosen"))["variant"] == "next"


async def test_a_caller_whose_variant_has_no_warm_pod_gets_a_cold_one_of_it(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 1}, variants=[{**STABLE, "weight": 99}, {**NEXT, "weight": 1}])
    async with operating():
        await world.warm(1)
        world.execution("rare", caller=caller_of("next", stable=99, next=1))
        status = await world.finished("rare")
    assert (status["variant"], status["start"]) == ("next", "Cold")


@pytest.mark.parametrize(("warm", "most"), [({"min": 1}, 9), ({"min": 0, "max": 1}, 9), ({"min": 1}, 1)])
async def test_a_caller_is_served_who_waits_for_a_variant_that_has_no_share_of_the_warm_pods(
    world: World, operating: Operating, warm: dict[str, int], most: int
) -> None:
    world.pool(warm=warm, maxPods=most, onEmpty="Wait", variants=[{**STABLE, "weight": 99}, {**NEXT, "weight": 1}])
    async with operating():
        await world.warm(warm["min"])
        world.execution("rare", caller=caller_of("next", stable=99, next=1))
        assert (await world.finished("rare"))["variant"] == "next"


async def test_a_weight_that_changes_moves_pods_once_others_are_warm(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 4}, variants=[{**STABLE, "weight": 100}, {**NEXT, "weight": 0}])
    async with operating():
        await world.warm(4)
        world.start_pods = False
        change(world, 2, variants=[STABLE, NEXT])
        await world.until(lambda: kinds(world) == {("stable", "sandbox"): 4, ("next", "newer"): 2})
        for name in [name for name, pod in world.pods().items() if "nodeName" not in pod["spec"]]:
            await world.start_pod(name)
        await world.until(lambda: kinds(world) == {("stable", "sandbox"): 2, ("next", "newer"): 2})


async def test_a_full_pool_moves_its_pods_one_by_one(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 4}, maxPods=4, variants=[{**STABLE, "weight": 100}, {**NEXT, "weight": 0}])
    async with operating():
        await world.warm(4)
        change(world, 2, variants=[STABLE, NEXT])
        await world.until(lambda: kinds(world) == {("stable", "sandbox"): 2, ("next", "newer"): 2})


async def test_variants_that_come_and_go_replace_the_pods_that_were_there(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 2})
    async with operating():
        await world.warm(2)
        change(world, 2, variants=[STABLE, NEXT])
        await world.until(lambda: kinds(world) == {("stable", "sandbox"): 1, ("next", "newer"): 1})
        change(world, 3, variants=[])
        await world.until(lambda: kinds(world) == {("", "sandbox"): 2})
        await world.until(lambda: world.pool_status().get("variants") == [] and not world.condition("VariantsHealthy"))
        world.execution("after")
        assert "variant" not in await world.finished("after")


async def test_a_variant_whose_pods_fail_leaves_rotation_and_says_so_until_it_is_put_back_by_hand(
    world: World, operating: Operating
) -> None:
    world.start_pods = False
    world.pool(warm={"min": 2}, variants=[STABLE, NEXT])
    async with operating():
        world.execution("moved", caller=caller_of("next"))
        await fail_pods_of(world, "next", 3)
        await world.until(lambda: variant(world, "next").get("inRotation") is False)
        world.start_pods = True
        # whoever waited for it is served by the other
        for name in [name for name, pod in world.pods().items() if "nodeName" not in pod["spec"]]:
            await world.start_pod(name)
        assert (await world.finished("moved"))["variant"] == "stable"
        await world.until(lambda: variant(world, "stable").get("warm") == 2)
        assert variant(world, "next")["reason"] == "StartFailures"
        assert world.condition("VariantsHealthy")["status"] == "False"
        assert "3 consecutive pods" in world.condition("VariantsHealthy")["message"]
        reasons = [event["reason"] for event in world.collections[EVENTS].values()]
        assert reasons.count("StartFailures") == 1
        assert world.condition("Ready")["status"] == "True"
    async with operating():  # another operator knows it too
        await world.until(lambda: variant(world, "next").get("warm") == 0)
        world.execution("still", caller=caller_of("next"))
        assert (await world.finished("still"))["variant"] == "stable"
        annotate(world, "next")
        await world.until(lambda: variant(world, "next").get("warm") == 1)
        assert world.pool_status()["restored"] == "next"
        assert world.condition("VariantsHealthy")["status"] == "True"
        world.execution("back", caller=caller_of("next"))
        assert (await world.finished("back"))["variant"] == "next"


async def test_a_variant_whose_image_cannot_be_pulled_leaves_rotation(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 2}, variants=[STABLE, {**NEXT, "weight": 0}])
    async with operating():
        await world.warm(2)
        world.start_pods = False
        change(world, 2, warm={"min": 6}, variants=[STABLE, NEXT])
        await world.until(lambda: kinds(world)[("next", "newer")] == 3)
        pulling = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
        for name, pod in list(world.pods().items()):
            if "nodeName" not in pod["spec"] and pod["metadata"]["labels"][LABEL_VARIANT] == "next":
                world.merge(PODS, name, {"status": {"phase": "Pending", "containerStatuses": [pulling]}})
        await world.until(lambda: variant(world, "next").get("reason") == "StartFailures")
        assert "no such image" in variant(world, "next")["message"]
        await world.until(lambda: not kinds(world)[("next", "newer")])
        # what its pods are like has changed: it is tried again
        world.start_pods = True
        for name in [name for name, pod in world.pods().items() if "nodeName" not in pod["spec"]]:
            await world.start_pod(name)
        change(world, 3, variants=[STABLE, {**NEXT, "image": "newest"}])
        await world.until(lambda: variant(world, "next").get("warm") == 3)


async def test_a_variant_whose_runs_end_by_its_fault_leaves_rotation(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 4}, variants=[STABLE, NEXT])
    async with operating():
        await world.warm(4)
        for name, code in (("stable", "raise UserError"), ("next", "raise RunnerDied")):
            for index in range(10):
                world.execution(f"{name}-{index}", code, caller=caller_of(name))
        async with asyncio.timeout(20):
            for name in ("stable", "next"):
                for index in range(10):
                    await world.finished(f"{name}-{index}")
        await world.until(lambda: variant(world, "next").get("reason") == "ErrorRate")
        world.execution("moved", caller=caller_of("next"))
        assert (await world.finished("moved"))["variant"] == "stable"


async def test_a_run_goes_on_in_its_variant_with_a_new_operator(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 2}, variants=[STABLE, NEXT])
    async with operating():
        world.execution("long", "wait", caller=caller_of("next"))
        await world.until(lambda: world.ran)
    async with operating():
        await world.until(lambda: variant(world, "next").get("busy") == 1)
        world.release.set()
        status = await world.finished("long")
    assert (status["phase"], status["variant"]) == ("Succeeded", "next")


async def test_variants_that_are_no_good_are_told(world: World, operating: Operating) -> None:
    world.pool(variants=[{**STABLE, "weight": 0}])
    async with operating():
        await world.until(
            lambda: "all weights are 0; at least one must be above 0" in world.condition("Ready").get("message", "")
        )
        change(world, 2, variants=[STABLE, STABLE])
        await world.until(lambda: "used more than once: stable" in world.condition("Ready").get("message", ""))
