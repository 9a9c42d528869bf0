"""Pods that no operator created, or that are not as requested, get neither code nor grants, whatever their labels."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from tests.support.api_server import Object
from tests.support.world import PODS, World

Operating = Callable[..., Any]


async def copy_of_a_pod(world: World, name: str) -> None:
    """Create a pod as somebody would who may read and create pods: a copy of the pool's, with a supervisor."""
    template = deepcopy(next(iter(world.pods().values())))
    metadata = {each: template["metadata"][each] for each in ("labels", "annotations", "ownerReferences")}
    world.put(PODS, {"metadata": {"name": name, **metadata}, "spec": template["spec"], "status": template["status"]})


async def test_a_copy_of_a_pod_is_not_used_and_the_pool_names_it(world: World, operating: Operating) -> None:
    world.pool(onEmpty="Wait", maxPods=2)
    for _ in range(2):  # also by the operator that finds it
        async with operating():
            await world.warm(1)
            await world.sealed()
            await copy_of_a_pod(world, "copy")
            await world.until(lambda: world.condition("PodsTrusted").get("reason") == "PodsOfOthers")
            assert "copy" in world.condition("PodsTrusted")["message"]
            world.execution("first")
            assert (await world.finished("first"))["podName"] != "copy"
            assert world.pool_status()["warm"] + world.pool_status()["starting"] <= 1
            world.remove(PODS, "copy")
            await world.until(lambda: world.condition("PodsTrusted").get("status") == "True")
        world.collections["/apis/mcp-exec.dev/v1beta1/namespaces/agents/codeexecutions"].clear()


async def test_a_pod_that_takes_the_name_of_one_that_is_gone_is_neither_used_nor_kept(
    world: World, operating: Operating
) -> None:
    """Its name and the digest of its token are right, its seal was made for another uid."""
    world.pool()
    async with operating():
        await world.warm(1)
        await world.sealed()
    (name,) = world.pods()
    replayed = deepcopy(world.pods()[name])
    del replayed["metadata"]["uid"]
    world.remove(PODS, name)
    world.put(PODS, replayed)
    uid = world.pods()[name]["metadata"]["uid"]
    async with operating():
        await world.until(lambda: name not in world.pods())
        world.execution("first")
        status = await world.finished("first")
    assert status["podUid"] != uid
    assert status["podName"] != name


async def test_a_run_whose_pod_was_replaced_by_another_of_its_name_is_lost(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        world.execution("long", "wait")
        await world.until(lambda: len(world.ran) == 1)
    name = world.status("long")["podName"]
    replayed = deepcopy(world.pods()[name])
    del replayed["metadata"]["uid"]
    world.remove(PODS, name)
    world.put(PODS, replayed)
    async with operating():
        status = await world.finished("long")
    assert (status["phase"], status["reason"], len(world.ran)) == ("Failed", "SandboxLost", 1)


def add_sidecar(pod: Object) -> None:
    pod["spec"]["containers"].append({"name": "istio-proxy", "image": "proxy"})
    pod["spec"]["initContainers"] = [{"name": "init", "image": "proxy"}]


def add_volume(pod: Object) -> None:
    pod["spec"]["volumes"].append({"name": "token", "projected": {"sources": []}})
    pod["spec"]["containers"][0]["volumeMounts"].append({"name": "token", "mountPath": "/var/run/secrets/cloud"})


def use_host_network(pod: Object) -> None:
    pod["spec"]["hostNetwork"] = True


def become_root(pod: Object) -> None:
    pod["spec"]["containers"][0]["securityContext"]["runAsUser"] = 0


@pytest.mark.parametrize(
    ("webhook", "fields"),
    [
        (add_sidecar, ["spec.containers[1].name", "spec.initContainers"]),
        (add_volume, ["spec.containers[0].volumeMounts.token:/var/run/secrets/cloud", "spec.volumes.token"]),
        (use_host_network, ["spec.hostNetwork"]),
        (become_root, ["spec.containers[0].securityContext.runAsUser"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_pod_that_a_webhook_changed_is_deleted_and_the_pool_names_the_fields(
    world: World, operating: Operating, webhook: Callable[[Object], None], fields: list[str]
) -> None:
    world.webhook = webhook
    world.pool()
    async with operating(bind_timeout_seconds=0.5):
        await world.until(lambda: world.condition("PodsTrusted").get("reason") == "PodsChanged")
        assert [field for field in fields if field not in world.condition("PodsTrusted")["message"]] == []
        await world.until(lambda: "admission webhook" in world.condition("Ready").get("message", ""))
        world.execution("first")
        status = await world.finished("first")
        assert (status["phase"], status["reason"], world.ran) == ("Failed", "PodChanged", [])
        world.webhook = lambda pod: None
        await world.warm(1)
        await world.until(lambda: world.condition("PodsTrusted").get("status") == "True")
