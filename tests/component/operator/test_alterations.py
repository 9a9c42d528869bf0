"""Pods that somebody alters after an operator made them run no further code, whatever they were used for."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from tests.support.api_server import Object
from tests.support.world import EVENTS, PODS, World

from mcp_exec_api.constants import LABEL_MANAGED_BY, LABEL_NAME, LABEL_POOL

Operating = Callable[..., Any]
Alteration = Callable[[Object], object]


def labels(pod: Object) -> dict[str, str]:
    found: dict[str, str] = pod["metadata"]["labels"]
    return found


def container(pod: Object) -> Object:
    found: Object = pod["spec"]["containers"][0]
    return found


ALTERATIONS: dict[str, tuple[Alteration, str]] = {
    "it loses the labels that NetworkPolicies select": (
        lambda pod: pod["metadata"].update(labels={}),
        f"metadata.labels.{LABEL_MANAGED_BY}",
    ),
    "it is called a pod of others": (lambda pod: labels(pod).update({LABEL_NAME: "web"}), f"labels.{LABEL_NAME}"),
    "it loses its pool": (lambda pod: labels(pod).pop(LABEL_POOL), f"labels.{LABEL_POOL}"),
    "it gets another pool": (lambda pod: labels(pod).update({LABEL_POOL: "open"}), f"labels.{LABEL_POOL}"),
    "it gets a label that another policy selects": (lambda pod: labels(pod).update(app="web"), "labels.app"),
    "its limit of memory is raised": (
        lambda pod: container(pod)["resources"]["limits"].update(memory="64Gi"),
        "spec.containers[0].resources",
    ),
    "the limits of the pod are raised": (
        lambda pod: pod["spec"].update(resources={"limits": {"memory": "64Gi"}}),
        "spec.resources",
    ),
    "it gets an ephemeral container": (
        lambda pod: pod["spec"].update(ephemeralContainers=[{"name": "debugger", "image": "sh"}]),
        "spec.ephemeralContainers",
    ),
    "its image is replaced": (lambda pod: container(pod).update(image="evil"), "spec.containers[0].image"),
}
SOME = {name: ALTERATIONS[name][0] for name in ALTERATIONS if "label" in name or "ephemeral" in name}
"""For pods that are not idle, where other code acts on what the same code recognizes."""


def alter(world: World, name: str, alteration: Alteration) -> None:
    pod = deepcopy(world.pods()[name])
    alteration(pod)
    world.put(PODS, pod)


def reports(world: World) -> list[str]:
    events = world.collections.get(EVENTS, {}).values()
    return [each["message"] for each in events if each["reason"] == "PodsAltered"]


@pytest.mark.parametrize(("alteration", "field"), ALTERATIONS.values(), ids=ALTERATIONS)
async def test_an_idle_pod_that_was_altered_is_deleted_and_reported(
    world: World, operating: Operating, alteration: Alteration, field: str
) -> None:
    world.pool()
    async with operating():
        await world.warm(1)
        (name,) = world.pods()
        alter(world, name, alteration)
        await world.until(lambda: name not in world.pods())
        world.execution("first")
        assert (await world.finished("first"))["podName"] != name
        await world.until(lambda: world.condition("PodsTrusted").get("reason") == "PodsAltered")
        assert f"{name}: " in world.condition("PodsTrusted")["message"]
        assert field in world.condition("PodsTrusted")["message"]
        await world.until(lambda: reports(world))


@pytest.mark.parametrize("alteration", SOME.values(), ids=SOME)
async def test_code_that_runs_in_a_pod_that_was_altered_ends(
    world: World, operating: Operating, alteration: Alteration
) -> None:
    world.pool()
    async with operating():
        world.execution("long", "wait")
        await world.until(lambda: len(world.ran) == 1)
        name = world.status("long")["podName"]
        alter(world, name, alteration)
        status = await world.finished("long")
        await world.until(lambda: name not in world.pods())
    assert (status["phase"], status["reason"]) == ("Failed", "SandboxLost")


@pytest.mark.parametrize("alteration", SOME.values(), ids=SOME)
async def test_a_pod_that_was_altered_while_no_operator_ran_is_not_used(
    world: World, operating: Operating, alteration: Alteration
) -> None:
    world.pool()
    async with operating():
        await world.warm(1)
        await world.sealed()
    (name,) = world.pods()
    alter(world, name, alteration)
    async with operating():
        world.execution("first")
        assert (await world.finished("first"))["podName"] != name


async def test_what_clusters_change_in_a_pod_is_no_alteration(world: World, operating: Operating) -> None:
    def change(pod: Object) -> None:
        labels(pod)["topology.kubernetes.io/zone"] = "a"
        pod["metadata"]["annotations"]["cni.projectcalico.org/podIP"] = "10.0.0.1/32"
        pod["metadata"]["finalizers"] = ["example.org/counted"]
        pod["spec"]["tolerations"].append({"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"})
        container(pod)["resizePolicy"] = [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]

    world.pool()
    for run in ("first", "after a restart"):
        async with operating():
            await world.warm(1)
            await world.until(lambda: len(world.pods()) == 1)
            await world.sealed()
            (name,) = world.pods()
            alter(world, name, change)
            world.execution(run.replace(" ", "-"))
            assert (await world.finished(run.replace(" ", "-")))["podName"] == name
            await world.warm(1)
            assert world.condition("PodsTrusted")["status"] == "True"


async def test_a_pod_that_somebody_deletes_is_not_reported(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        await world.warm(1)
        (name,) = world.pods()
        world.remove(PODS, name)
        await world.until(lambda: world.pods() and name not in world.pods())
        await world.warm(1)
        assert world.condition("PodsTrusted")["status"] == "True"


async def test_a_session_does_not_go_on_in_a_pod_that_was_altered(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        world.execution("first", session="notes")
        name = (await world.finished("first"))["podName"]
        alter(world, name, lambda pod: container(pod)["resources"]["limits"].update(memory="64Gi"))
        await world.until(lambda: name not in world.pods())
        world.execution("second", session="notes")
        status = await world.finished("second")
    assert status["reason"] == "SessionLost"
    assert len(world.ran) == 1
