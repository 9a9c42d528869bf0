"""Pools: their pods, and what they say when there are none."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.component.operator.conftest import late_list
from tests.support.api_server import Fault
from tests.support.until import until
from tests.support.world import CEX, EVENTS, PODS, POLICIES, SBP, World

from mcp_exec_api.constants import LABEL_MANAGED_BY, LABEL_POOL, LABEL_STATE, MANAGED_BY
from mcp_exec_api.meta import now

Operating = Callable[..., Any]


async def test_a_pool_is_ready_when_its_pods_are_warm(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 3})
    async with operating():
        await world.warm(3)
        status = world.collections[SBP]["default"]["status"]
    assert (status["replicas"], status["desired"], status["starting"], status["busy"]) == (3, 3, 0, 0)
    assert status["observedGeneration"] == 1
    assert "mcp-exec.dev/pool=default" in status["selector"]
    assert [world.condition(kind)["status"] for kind in ("Ready", "Isolated", "TemplateHonoured")] == ["True"] * 3


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ('pods "x" is forbidden: pod rejected: RuntimeClass "kata" not found', "RuntimeClassNotFound"),
        ('pods "x" is forbidden: exceeded quota: sandboxes, requested: pods=1, used: pods=3', "QuotaExceeded"),
        ('pods "x" is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi', "LimitRangeExceeded"),
        ('pods "x" is forbidden: violates PodSecurity "restricted:latest"', "PodRefused"),
    ],
)
async def test_a_refused_pod_is_told_by_the_pool_and_by_who_waits(
    world: World, operating: Operating, message: str, reason: str
) -> None:
    world.refuse_pods = (403, message)
    world.pool()
    async with operating(bind_timeout_seconds=0.8):
        world.execution("waits")
        await world.until(lambda: world.condition("Ready").get("reason") == reason)
        status = await world.finished("waits")
        await world.until(lambda: len(world.collections.get(EVENTS, {})) >= 2)
        world.refuse_pods = None
        await world.warm(1)
    assert (status["phase"], status["reason"]) == ("Failed", reason)
    assert message in status["error"]["message"]
    told = sorted((event["involvedObject"]["kind"], event["reason"]) for event in world.collections[EVENTS].values())
    assert told == [("CodeExecution", reason), ("SandboxPool", reason)]


@pytest.mark.parametrize(
    ("pod_status", "reason"),
    [
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]},
            "ImagePullFailed",
        ),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}]},
            "Unschedulable",
        ),
    ],
)
async def test_a_pod_that_cannot_start_is_held_and_told(
    world: World, operating: Operating, pod_status: dict[str, Any], reason: str
) -> None:
    world.start_pods = False
    world.pool()
    async with operating(bind_timeout_seconds=1.5, pod_start_timeout_seconds=0.1):
        await world.until(world.pods)
        pod = next(iter(world.pods()))
        world.merge(PODS, pod, {"status": {"phase": "Pending", **pod_status}})
        world.execution("waits")
        status = await world.finished("waits")
        await world.until(lambda: world.condition("Ready").get("reason") == reason)
        assert list(world.pods()) == [pod]
    assert (status["phase"], status["reason"]) == ("Failed", reason)


async def test_a_pod_that_was_held_for_long_has_its_whole_time_to_start(world: World, operating: Operating) -> None:
    world.start_pods = False
    world.pool()
    async with operating(bind_timeout_seconds=2, pod_start_timeout_seconds=1.8):
        await world.until(world.pods)
        (pod,) = world.pods()
        no_node = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}
        world.merge(PODS, pod, {"status": {"phase": "Pending", "conditions": [no_node]}})
        world.execution("waits")
        assert (await world.finished("waits"))["reason"] == "Unschedulable"
        scheduled = {"conditions": [{"type": "PodScheduled", "status": "True"}]}
        world.merge(PODS, pod, {"spec": {"nodeName": world.node}, "status": scheduled})
        await world.until(lambda: world.condition("Ready").get("reason") == "Starting")
        await world.start_pod(pod)
        await world.warm(1)
        assert list(world.pods()) == [pod]


async def test_a_pod_that_fails_before_it_is_ready_is_replaced_after_a_pause(
    world: World, operating: Operating
) -> None:
    world.start_pods = False
    world.pool()
    async with operating():
        await world.until(world.pods)
        pod = next(iter(world.pods()))
        ended = {"containerStatuses": [{"state": {"terminated": {"reason": "StartError", "exitCode": 128}}}]}
        world.merge(PODS, pod, {"status": {"phase": "Failed", **ended}})
        await world.until(lambda: world.condition("Ready").get("reason") == "PodFailed")
        assert "StartError" in world.condition("Ready")["message"]
        world.start_pods = True
        for name in set(world.pods()) - {pod}:  # one may have been made already
            await world.start_pod(name)
        await world.warm(1)
    assert pod not in world.pods()


async def test_a_module_that_cannot_be_imported_is_the_reason_of_its_pool(world: World, operating: Operating) -> None:
    world.start_pods = False
    world.pool(preimport=["panda"])
    async with operating():
        await world.until(world.pods)
        (pod,) = world.pods().values()
        environment = {each["name"]: each["value"] for each in pod["spec"]["containers"][0]["env"]}
        assert environment["MCP_EXEC_PREIMPORT"] == "panda"
        message = json.dumps({"message": "the module panda can't be imported", "reason": "PreimportFailed"})
        ended = {"containerStatuses": [{"state": {"terminated": {"exitCode": 1, "message": message + "\n"}}}]}
        world.merge(PODS, pod["metadata"]["name"], {"status": {"phase": "Failed", **ended}})
        await world.until(lambda: world.condition("Ready").get("reason") == "PreimportFailed")
        assert "the module panda can't be imported" in world.condition("Ready")["message"]


async def test_an_execution_of_a_pool_that_does_not_exist_waits_for_it(world: World, operating: Operating) -> None:
    async with operating():
        world.execution("early")
        await world.until(lambda: world.status("early").get("reason") == "PoolNotFound")
        assert world.status("early")["phase"] == "Pending"
        world.pool()
        status = await world.finished("early")
    assert (status["phase"], status["start"]) == ("Succeeded", "Cold")
    assert "reason" not in status


async def test_an_execution_of_a_pool_that_never_comes_fails(world: World, operating: Operating) -> None:
    async with operating(bind_timeout_seconds=0.2):
        world.execution("lonely")
        status = await world.finished("lonely")
    assert (status["phase"], status["reason"]) == ("Failed", "PoolNotFound")


async def test_a_full_pool_says_that_it_is_full(world: World, operating: Operating) -> None:
    world.pool(maxPods=1)
    async with operating(bind_timeout_seconds=0.5):
        world.execution("first", "wait")
        await world.until(lambda: len(world.ran) == 1)
        world.execution("second")
        status = await world.finished("second")
        world.release.set()
        await world.finished("first")
    assert (status["phase"], status["reason"]) == ("Failed", "PoolAtCapacity")


async def test_no_pod_is_made_while_its_network_policy_is_refused(world: World, operating: Operating) -> None:
    world.faults.append(Fault("POST", "/networkpolicies", 403, message="networkpolicies is forbidden"))
    world.pool()
    async with operating():
        await world.until(lambda: world.condition("Isolated").get("reason") == "NetworkPolicyFailed")
        assert not world.pods()
        assert "networkpolicies is forbidden" in world.condition("Isolated")["message"]
        await world.warm(1)
    assert "mcp-exec-pool-default" in world.collections[POLICIES]


async def test_a_network_policy_that_somebody_changed_is_put_right(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        await world.warm(1)
        wanted = world.collections[POLICIES]["mcp-exec-pool-default"]["spec"]
        world.merge(POLICIES, "mcp-exec-pool-default", {"spec": {"egress": [{}]}})
        await world.until(lambda: world.collections[POLICIES]["mcp-exec-pool-default"]["spec"] == wanted)


async def test_a_pool_that_shrinks_ends_pods_and_one_that_grows_makes_some(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 3})
    async with operating():
        await world.warm(3)
        world.merge(SBP, "default", {"metadata": {"generation": 2}, "spec": {"warm": {"min": 1}}})
        await world.until(lambda: len(world.pods()) == 1)
        world.merge(SBP, "default", {"metadata": {"generation": 3}, "spec": {"warm": {"min": 2}}})
        await world.until(lambda: len(world.pods()) == 2)
        await world.warm(2)


async def test_a_new_image_replaces_pods_one_by_one(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 2})
    async with operating():
        await world.warm(2)
        world.merge(SBP, "default", {"metadata": {"generation": 2}, "spec": {"image": "newer"}})
        await world.until(lambda: _images(world) == ["newer", "newer"])
        await world.warm(2)


async def test_a_template_cannot_weaken_a_pod_and_the_pool_says_so(world: World, operating: Operating) -> None:
    world.pool(template={"spec": {"hostNetwork": True, "containers": [{"name": "sidecar", "image": "x"}]}})
    async with operating():
        await world.until(lambda: world.condition("TemplateHonoured").get("status") == "False")
        pod = next(iter(world.pods().values()))
    assert (
        world.condition("TemplateHonoured")["message"]
        == "the template may not set spec.containers[0], spec.hostNetwork"
    )
    assert pod["spec"]["hostNetwork"] is False
    assert len(pod["spec"]["containers"]) == 1


async def test_a_spec_that_is_none_is_told(world: World, operating: Operating) -> None:
    world.pool(workspaceSize="1k")
    async with operating():
        await world.until(lambda: world.condition("Ready").get("status") == "False")
    assert "workspaceSize" in world.condition("Ready")["message"]
    assert not world.pods()


async def test_a_used_pod_that_no_execution_has_is_deleted(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        world.execution("first", "wait")
        await world.until(lambda: len(world.ran) == 1)
        pod = world.status("first")["podName"]
    # its execution vanishes while no operator is there to see it
    world.remove(CEX, "first")
    async with operating():
        await world.until(lambda: pod not in world.pods())
        await world.warm(1)


async def test_a_warm_pod_survives_a_new_operator(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        await world.warm(1)
        await world.sealed()
        pods = list(world.pods())
    async with operating():
        world.execution("next")
        status = await world.finished("next")
    assert status["podName"] in pods


async def test_a_warm_pod_that_ends_is_replaced(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        await world.warm(1)
        pod = next(iter(world.pods()))
        world.kill_pod(pod, {"phase": "Failed", "reason": "Evicted", "message": "low on memory"})
        await world.until(lambda: world.pods() and pod not in world.pods())
        await world.warm(1)


async def test_a_pod_that_is_stuck_goes_once_a_younger_one_has_come_up(world: World, operating: Operating) -> None:
    world.start_pods = False
    world.pool()
    async with operating():
        await world.until(world.pods)
        await world.sealed()
    (stuck,) = world.pods()
    created = {"creationTimestamp": (now() - timedelta(minutes=1)).isoformat()}
    world.merge(PODS, stuck, {"metadata": created, "spec": {"nodeName": world.node}})
    async with operating():
        await world.until(lambda: len(world.pods()) == 2)
        (younger,) = set(world.pods()) - {stuck}
        await world.start_pod(younger)
        await world.until(lambda: stuck not in world.pods())
        await world.warm(1)
        assert list(world.pods()) == [younger]


async def test_a_deleted_pool_makes_no_more_pods(world: World, operating: Operating) -> None:
    world.pool()
    async with operating(bind_timeout_seconds=0.3) as operator:
        await world.warm(1)
        world.remove(SBP, "default")
        world.remove(PODS, next(iter(world.pods())))  # as Kubernetes does with what it owned
        # executions have a watch of their own, which may be faster
        await until(lambda: not _series(operator.metrics.registry, pool="default"))
        world.execution("late")
        status = await world.finished("late")
    assert (status["reason"], world.pods()) == ("PoolNotFound", {})


async def test_the_metrics_of_a_deleted_pool_end_with_it(world: World, operating: Operating) -> None:
    world.pool()
    async with operating() as operator:
        await world.warm(1)
        assert "mcp_exec_pool_pods" in _series(operator.metrics.registry, pool="default")
        world.remove(SBP, "default")
        world.remove(PODS, next(iter(world.pods())))
        await until(lambda: not _series(operator.metrics.registry, pool="default"))
        world.execution("late")  # keeps the pool in memory
        await world.until(lambda: world.status("late").get("reason") == "PoolNotFound")
        assert not _series(operator.metrics.registry, pool="default")


async def test_a_list_that_is_older_than_a_pools_deletion_does_not_bring_it_back(
    world: World, operating: Operating
) -> None:
    world.pool()
    async with operating() as operator:
        await world.warm(1)
        async with late_list(operator, "sandboxpools"):
            world.remove(SBP, "default")
            world.remove(PODS, next(iter(world.pods())))
            await until(lambda: not _series(operator.metrics.registry, pool="default"))
        world.execution("late")
        await world.until(lambda: world.status("late").get("reason") == "PoolNotFound")
    assert world.pods() == {}


async def test_a_list_that_is_older_than_a_pool_does_not_remove_it(world: World, operating: Operating) -> None:
    world.pool()
    async with operating() as operator:
        await world.warm(1)
        async with late_list(operator, "sandboxpools"):
            world.remove(SBP, "default")
            world.remove(PODS, next(iter(world.pods())))
            await until(lambda: not _series(operator.metrics.registry, pool="default"))
            world.pool()  # another one of that name
            await world.warm(1)
        world.execution("next")
        assert (await world.finished("next"))["start"] == "Warm"


async def test_a_list_that_is_older_than_a_pods_deletion_does_not_bring_it_back(
    world: World, operating: Operating
) -> None:
    world.pool(maxPods=1)
    async with operating() as operator:
        await world.warm(1)
        await world.sealed()
        (old,) = world.pods()
        async with late_list(operator, "pods"):
            world.remove(PODS, old)
            await world.until(lambda: world.pods().keys() - {old} and world.pool_status().get("warm") == 1)
            await world.sealed()
        for name in ("first", "second"):  # the second needs the place that the removed pod would take
            world.execution(name)
            assert (await world.finished(name))["phase"] == "Succeeded"


@pytest.mark.parametrize("labels", [{}, {LABEL_POOL: "default"}, {LABEL_MANAGED_BY: MANAGED_BY}])
async def test_a_pod_without_all_labels_of_a_pool_is_neither_counted_nor_deleted(
    world: World, operating: Operating, labels: dict[str, str]
) -> None:
    status = {"phase": "Running", "podIP": "127.0.0.9", "containerStatuses": [{"state": {"running": {}}}]}
    metadata = {"name": "foreign", "labels": {**labels, LABEL_STATE: "busy"}}
    world.put(PODS, {"metadata": metadata, "spec": {"nodeName": world.node}, "status": status})
    world.pool(maxPods=1)
    for _ in range(2):
        async with operating():
            await world.warm(1)
            await world.sealed()
            world.merge(PODS, "foreign", {"metadata": {"annotations": {"seen": "again"}}})
            counts = world.pool_status()
            assert (counts["warm"], counts["busy"], counts["starting"]) == (1, 0, 0)
            assert "foreign" in world.pods()
    assert len(world.pods()) == 2


async def test_events_that_could_not_be_read_are_read_again(world: World, operating: Operating) -> None:
    world.start_pods = False
    world.pool()
    async with operating():
        await world.until(world.pods)
        await world.sealed()
    (slow,) = world.pods()
    created = {"creationTimestamp": (now() - timedelta(minutes=1)).isoformat()}
    world.merge(PODS, slow, {"metadata": created, "spec": {"nodeName": world.node}})
    # the fake API server compares field selectors with names
    selector = f"involvedObject.kind=Pod,involvedObject.name={slow},type=Warning"
    world.put(EVENTS, {"metadata": {"name": selector}, "reason": "FailedMount", "message": "no such secret"})
    world.faults.append(Fault("GET", "/events", 403, message="events is forbidden"))
    async with operating():
        await world.until(lambda: "FailedMount: no such secret" in world.condition("Ready").get("message", ""))
        assert not world.faults


async def test_lost_answers_of_the_api_server_bind_and_end_once(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        await world.warm(1)
        for what in ("lost before", "lost after", "busy after"):
            world.faults += [Fault("PUT", f"/{what.replace(' ', '-')}/status", what)] * 1  # type: ignore[arg-type]
            uid = world.execution(what.replace(" ", "-"))
            status = await world.finished(what.replace(" ", "-"))
            assert (status["phase"], world.ran.count(uid)) == ("Succeeded", 1)


def _series(registry: CollectorRegistry, **labels: str) -> set[str]:
    """Return the names of the metrics that have a series with these labels."""
    return {
        metric.name
        for metric in registry.collect()
        if any(labels.items() <= sample.labels.items() for sample in metric.samples)
    }


def _images(world: World) -> list[str]:
    return [pod["spec"]["containers"][0]["image"] for pod in world.pods().values()]
