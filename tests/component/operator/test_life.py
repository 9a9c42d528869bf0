"""The life of a pod: idle ones are replaced in time and without a gap, and what takes a busy one ends its run."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.pace import paced
from tests.support.world import NODES, PODS, SBP, World

from mcp_exec_operator.core.executions import run
from mcp_exec_operator.core.pods.cache import PodCache

Operating = Callable[..., Any]


def watch_warm(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that receives the number of warm pods after each change, from now on."""
    counts: list[int] = []

    def count_after(method: Callable[..., Any]) -> Callable[..., Any]:
        def change(cache: PodCache, *arguments: Any, **named: Any) -> Any:
            result = method(cache, *arguments, **named)
            counts.append(cache.counts.warm)
            return result

        return change

    for name in ("observe", "mark_ready", "recheck_node", "take", "release", "retire", "forget"):
        monkeypatch.setattr(PodCache, name, count_after(getattr(PodCache, name)))
    return counts


def change_pool(world: World, generation: int = 2, **spec: Any) -> None:
    world.merge(SBP, "default", {"metadata": {"generation": generation}, "spec": spec})


def images(world: World) -> list[str]:
    return [pod["spec"]["containers"][0]["image"] for pod in world.pods().values()]


async def settled(world: World, count: int) -> None:
    """Until so many pods are there, all warm, and none is to be replaced."""

    def are_settled() -> bool:
        status = world.collections[SBP]["default"].get("status") or {}
        current = world.condition("Current").get("status") == "True"
        return current and status.get("warm") == len(world.pods()) == count

    await world.until(are_settled)


async def test_a_new_template_rolls_without_a_pod_fewer_than_should_be_warm(
    world: World, operating: Operating, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.pool(warm={"min": 3})
    async with operating():
        await world.warm(3)
        counts = watch_warm(monkeypatch)
        change_pool(world, image="newer")
        await world.until(lambda: images(world) == ["newer"] * 3)
        await settled(world, 3)
    assert (min(counts), max(counts)) == (3, 4)


async def test_a_pool_without_room_for_one_more_says_so_and_rolls_with_one_fewer(
    world: World, operating: Operating, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.pool(warm={"min": 3}, maxPods=3)
    async with operating():
        await world.warm(3)
        counts = watch_warm(monkeypatch)
        world.start_pods = False
        change_pool(world, image="newer")
        await world.until(lambda: "maxPods leaves no room" in world.condition("Current").get("message", ""))
        await world.until(lambda: sorted(images(world)) == ["newer", "sandbox", "sandbox"])
        world.start_pods = True
        await world.start_pod(next(name for name, pod in world.pods().items() if "nodeName" not in pod["spec"]))
        await world.until(lambda: images(world) == ["newer"] * 3)
        await settled(world, 3)
    assert min(counts) == 2


async def test_a_template_whose_pods_fail_leaves_the_old_ones_warm(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 2})
    async with operating():
        await world.warm(2)
        before = set(world.pods())
        world.start_pods = False
        change_pool(world, image="broken")
        await world.until(lambda: len(world.pods()) == 3)
        (made,) = set(world.pods()) - before
        pulling = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
        world.merge(PODS, made, {"status": {"phase": "Pending", "containerStatuses": [pulling]}})
        await world.until(lambda: world.condition("Current").get("reason") == "Replacing")
        world.execution("meanwhile")
        assert (await world.finished("meanwhile"))["start"] == "Warm"


async def test_pods_that_stood_idle_for_too_long_are_replaced_without_a_gap(
    world: World, operating: Operating, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.pool(warm={"min": 3})
    async with operating():
        await world.warm(3)
        await world.sealed()
    before = set(world.pods())
    made_at = (datetime.now(UTC) - timedelta(seconds=61)).strftime("%Y-%m-%dT%H:%M:%SZ")
    for name in before:
        world.merge(PODS, name, {"metadata": {"creationTimestamp": made_at}})
    counts = watch_warm(monkeypatch)
    async with operating():  # another operator, which goes by what the pods say
        await world.until(lambda: counts[-1:] == [3])
        counts.clear()
        change_pool(world, maxIdleAgeSeconds=60)
        await world.until(lambda: not before & set(world.pods()))
        await settled(world, 3)
    assert (min(counts), max(counts)) == (3, 4)
    # one at a time: not a pod was made beyond those that were replaced
    assert len(world.asked("POST", "/pods")) == 6


async def test_idle_pods_leave_a_cordoned_node_once_others_stand_elsewhere(
    world: World, operating: Operating, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.pool(warm={"min": 3})
    world.change_node("node1")
    async with operating():
        await world.warm(3)
        counts = watch_warm(monkeypatch)
        world.node = "node2"
        world.change_node("node1", cordoned=True)
        await world.until(lambda: nodes_of(world) == ["node2"] * 3)
        await settled(world, 3)
    assert min(counts) == 3


async def test_pods_without_another_node_stay_usable_and_their_replacement_is_held_until_it_is_uncordoned(
    world: World, operating: Operating
) -> None:
    world.pool(warm={"min": 2})
    world.change_node("node1")
    async with operating():
        await world.warm(2)
        before = set(world.pods())
        world.start_pods = False
        world.change_node("node1", cordoned=True)
        await world.until(lambda: len(world.pods()) == 3)
        (held,) = set(world.pods()) - before
        unscheduled = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}
        world.merge(PODS, held, {"status": {"phase": "Pending", "conditions": [unscheduled]}})
        await world.until(lambda: "0/1 nodes are available" in world.condition("Current").get("message", ""))
        assert "node1 is cordoned" in world.condition("Current")["message"]
        assert set(world.pods()) == {*before, held}
        world.execution("meanwhile")
        assert (await world.finished("meanwhile"))["start"] == "Warm"
        world.start_pods = True
        world.change_node("node1")
        for name in [name for name, pod in world.pods().items() if "nodeName" not in pod["spec"]]:
            await world.start_pod(name)
        await settled(world, 2)
        assert before & set(world.pods())


async def test_pods_of_a_node_that_is_not_ready_are_not_handed_out_and_are_replaced(
    world: World, operating: Operating
) -> None:
    world.pool(warm={"min": 2})
    world.change_node("node1")
    async with operating():
        await world.warm(2)
        before = set(world.pods())
        world.node = "node2"
        world.change_node("node1", ready="Unknown")
        await world.until(lambda: len(world.pods()) > 2)
        world.execution("meanwhile")
        status = await world.finished("meanwhile")
        assert status["podName"] not in before
        await world.until(lambda: not before & set(world.pods()))
        await settled(world, 2)


async def test_a_pod_that_starts_on_a_node_that_is_lost_is_replaced_at_once(world: World, operating: Operating) -> None:
    world.pool()
    world.change_node("node1")
    world.start_pods = False
    async with operating():
        await world.until(world.pods)
        first = next(iter(world.pods()))
        world.merge(PODS, first, {"spec": {"nodeName": "node1"}})
        world.start_pods, world.node = True, "node2"
        world.change_node("node1", ready="Unknown")
        await world.until(lambda: first not in world.pods())
        await settled(world, 1)


async def test_pods_of_a_node_that_comes_back_are_asked_again_and_used(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 2})
    world.change_node("node1")
    async with operating():
        await world.warm(2)
        before = set(world.pods())
        world.start_pods = False
        world.change_node("node1", ready="False")
        await world.until(lambda: len(world.pods()) == 4)
        world.change_node("node1")
        await settled(world, 2)
        assert set(world.pods()) == before


async def test_an_idle_pod_that_is_not_ready_any_more_is_replaced(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        await world.warm(1)
        pod = next(iter(world.pods()))
        world.merge(PODS, pod, {"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
        await world.until(lambda: pod not in world.pods())
        await settled(world, 1)


async def test_an_idle_pod_whose_supervisor_ends_is_replaced(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 2})
    async with operating():
        await world.warm(2)
        pod = next(iter(world.pods()))
        ended = {"phase": "Running", "containerStatuses": [{"state": {"terminated": {"exitCode": 137}}}]}
        world.kill_pod(pod, ended)
        await world.until(lambda: pod not in world.pods())
        await settled(world, 2)


@pytest.mark.parametrize("lost", ["not ready", "gone"])
async def test_a_run_on_a_node_that_is_lost_ends_at_once_and_keeps_its_output(
    world: World, operating: Operating, lost: str
) -> None:
    world.pool()
    world.change_node("node1")
    async with operating():
        world.execution("lost", "wait", timeoutSeconds=300)
        await world.until(lambda: world.ran and len(world.supervisor_of("lost").events) == 2)
        # the node's power fails: nothing answers, and no connection is closed
        world.supervisor_of("lost").frozen = True
        if lost == "gone":
            world.remove(NODES, "node1")
        else:
            world.change_node("node1", ready="Unknown")
        status = await world.finished("lost")
    assert (status["phase"], status["reason"], status["output"]["stdout"]) == ("Failed", "NodeLost", "waiting\n")
    assert "node1" in status["error"]["message"]


async def test_a_run_goes_on_while_its_node_is_not_ready_but_its_sandbox_answers(
    world: World, operating: Operating
) -> None:
    world.pool()
    world.change_node("node1")
    async with operating():
        world.execution("long", "wait")
        await world.until(lambda: world.ran and len(world.supervisor_of("long").events) == 2)
        supervisor = world.supervisor_of("long")
        world.change_node("node1", ready="False")
        async with asyncio.timeout(paced(20)):
            await supervisor.questioned.wait()
        world.release.set()
        status = await world.finished("long")
    assert (status["phase"], status["output"]["stdout"]) == ("Succeeded", "waiting\n")


async def test_a_stream_that_does_not_come_up_again_ends_the_run_as_such(
    world: World, operating: Operating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_RECONNECT_DELAYS", (0.01,) * 3)
    world.pool()
    async with operating():
        world.execution("torn", "wait")
        await world.until(lambda: world.ran and len(world.supervisor_of("torn").events) == 2)
        world.silence(world.status("torn")["podName"])
        status = await world.finished("torn")
    assert (status["phase"], status["reason"], status["output"]["stdout"]) == ("Failed", "StreamBroken", "waiting\n")


@pytest.mark.parametrize("gone", [False, True])
async def test_a_run_whose_pod_is_drained_away_says_so_even_if_the_pod_is_gone_already(
    world: World, operating: Operating, gone: bool
) -> None:
    world.pool()
    world.change_node("node1")
    async with operating():
        world.execution("moved", "wait")
        await world.until(lambda: world.ran and len(world.supervisor_of("moved").events) == 2)
        world.change_node("node1", cordoned=True)
        deleted = {"deletionTimestamp": datetime.now(UTC).isoformat()}
        pod = world.status("moved")["podName"]
        world.merge(PODS, pod, {"metadata": deleted})
        world.silence(pod)
        if gone:
            world.remove(PODS, pod)
        status = await world.finished("moved")
    assert (status["phase"], status["reason"]) == ("Failed", "Evicted")


def nodes_of(world: World) -> list[str]:
    return [pod["spec"].get("nodeName", "") for pod in world.pods().values()]


async def test_an_idle_operator_stops_without_waiting_for_a_loop(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 1})
    async with asyncio.timeout(paced(30)), operating(shutdown_seconds=600):
        await world.until(lambda: world.pods)
