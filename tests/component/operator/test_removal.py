"""Namespaces that were removed from the values: the operator that serves the others ends what is left in them."""

from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from tests.component.operator.conftest import settings
from tests.component.operator.test_claims import claim, holder, label
from tests.support.api_server import Fault
from tests.support.skills import make_skill
from tests.support.world import BINDINGS, LEASES, NAMESPACE, PODS, POLICIES, SBP, World

from mcp_exec_api.constants import ANNOTATION_SERVED, LABEL_COMPONENT, LABEL_NAME, LABEL_SHIPPED, MANAGED_BY, SKILLS
from mcp_exec_api.sandbox_pool import UNOBSERVED_STATUS
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.credentials import KubeCredentials
from mcp_exec_operator.core.removal import RemovedNamespaces

Operating = Callable[..., Any]
OPERATOR, LABEL = "mcp-exec-operator", "mcp-exec-system.mcp-exec"
OTHERS: dict[str, Any] = {"namespaces": ("others",), "service_account": OPERATOR}
"""Settings of an operator that does not serve the namespace of these tests."""


@pytest.fixture
async def remove(world: World) -> Any:
    """Tries once to end what is left in the namespaces that are not served."""
    world.put(LEASES, {"metadata": {"name": OPERATOR, "annotations": {ANNOTATION_SERVED: f"{NAMESPACE},others"}}})
    world.put(BINDINGS, {"metadata": {"name": f"{OPERATOR}-removal"}})
    async with aiohttp.ClientSession(base_url=world.url) as session:
        kube = KubeClient(session=session, credentials=KubeCredentials(server=""), retry_delays=(), timeout_seconds=5)
        made = settings(**OTHERS, release_label=LABEL)
        yield RemovedNamespaces(settings=made, kube=kube, named=lambda: made.namespaces).remove


async def leave(world: World, operating: Operating) -> None:
    """Leave a run, a warm pod, an execution that waits and a shipped skill, as an operator does that is replaced."""
    world.pool()
    async with operating():
        world.execution("long", "wait")
        await world.until(lambda: len(world.ran) == 1)
        await world.warm(1)
    world.execution("waiting")
    for name, labels in (("shipped", {LABEL_SHIPPED: "true"}), ("own", {})):
        skill = make_skill(name, author="bob")
        skill["metadata"]["labels"] = skill["metadata"].get("labels", {}) | labels
        world.put(custom_resource_path(SKILLS, namespace=NAMESPACE), skill)


def recorded(world: World) -> str:
    return str(world.collections[LEASES][OPERATOR]["metadata"].get("annotations", {}).get(ANNOTATION_SERVED))


async def test_its_runs_end_with_a_reason_and_its_sandboxes_and_shipped_skills_go(
    world: World, operating: Operating, remove: Any
) -> None:
    await leave(world, operating)
    assert await remove()
    assert {name: world.status(name)["reason"] for name in ("long", "waiting")} == dict.fromkeys(
        ("long", "waiting"), "Cancelled"
    )
    assert world.pods() == {}
    assert set(world.collections[custom_resource_path(SKILLS, namespace=NAMESPACE)]) == {"own-v1"}
    assert world.collections[SBP]["default"]["status"] == UNOBSERVED_STATUS
    assert "mcp-exec-base" not in world.collections[POLICIES]
    assert world.collections[BINDINGS] == {}
    assert recorded(world) == "others"


async def test_a_leader_records_what_it_serves_and_removes_what_it_does_not(world: World, operating: Operating) -> None:
    world.put(LEASES, {"metadata": {"name": OPERATOR}})
    world.put(BINDINGS, {"metadata": {"name": f"{OPERATOR}-removal"}})
    world.pool()
    async with operating(service_account=OPERATOR):
        await world.until(lambda: recorded(world) == NAMESPACE)
        await world.warm(1)
    before = set(world.pods())
    assert before
    async with operating(**OTHERS):
        await world.until(lambda: recorded(world) == "others")
        assert not before & set(world.pods())


@pytest.mark.parametrize(("method", "path"), [("GET", PODS), ("DELETE", f"{BINDINGS}/{OPERATOR}-removal")])
async def test_what_fails_is_tried_again(
    world: World, operating: Operating, remove: Any, method: str, path: str
) -> None:
    await leave(world, operating)
    world.faults.append(Fault(method, path, 500))
    assert not await remove()
    assert recorded(world) == f"{NAMESPACE},others"
    assert await remove()
    assert (world.pods(), recorded(world)) == ({}, "others")


@pytest.mark.parametrize("code", [403, 404])
async def test_without_rights_in_it_a_namespace_is_forgotten(world: World, remove: Any, code: int) -> None:
    """It was deleted, or something that keeps no object deleted the binding, too."""
    world.faults.append(Fault("GET", BINDINGS, code))
    assert await remove()
    assert recorded(world) == "others"


async def test_a_namespace_that_another_release_serves_is_left_to_it(
    world: World, operating: Operating, remove: Any
) -> None:
    await leave(world, operating)
    labels = {LABEL_NAME: MANAGED_BY, LABEL_COMPONENT: "operator"}
    world.put(BINDINGS, {"metadata": {"name": "blue-mcp-exec-operator", "labels": labels}})
    pods = set(world.pods())
    assert await remove()
    assert set(world.pods()) == pods
    assert world.status("waiting") == {}
    assert (set(world.collections[BINDINGS]), recorded(world)) == ({"blue-mcp-exec-operator"}, "others")


@pytest.mark.parametrize("release", ["mcp-exec-system/mcp-exec-operator", "tools/mcp-exec-operator"])
async def test_a_claim_of_another_release_protects_the_namespace_and_the_own_is_given_up(
    world: World, operating: Operating, remove: Any, release: str
) -> None:
    await leave(world, operating)
    claim(world, release)
    pods = set(world.pods())
    assert await remove()
    others = release.startswith("tools/")
    assert set(world.pods()) == (pods if others else set())
    assert holder(world) == (release if others else "None")


async def test_a_binding_of_the_own_operator_that_helm_has_not_deleted_yet_is_no_other_release(
    world: World, operating: Operating, remove: Any
) -> None:
    await leave(world, operating)
    labels = {LABEL_NAME: MANAGED_BY, LABEL_COMPONENT: "operator"}
    world.put(BINDINGS, {"metadata": {"name": OPERATOR, "labels": labels}})
    assert await remove()
    assert world.pods() == {}


@pytest.mark.parametrize(("release", "is_left"), [(LABEL, False), ("tools.mcp-exec", True)])
async def test_the_label_of_the_namespace_decides_whose_it_is_and_no_object_in_it(
    world: World, operating: Operating, remove: Any, release: str, is_left: bool
) -> None:
    await leave(world, operating)
    label(world, release)
    claim(world, "tools/mcp-exec-operator" if release == LABEL else "mcp-exec-system/mcp-exec-operator")
    labels = {LABEL_NAME: MANAGED_BY, LABEL_COMPONENT: "operator"}
    world.put(BINDINGS, {"metadata": {"name": "blue-mcp-exec-operator", "labels": labels}})
    pods = set(world.pods())
    assert await remove()
    assert set(world.pods()) == (pods if is_left else set())


async def test_a_namespace_that_is_still_served_is_removed_after_that(world: World, operating: Operating) -> None:
    world.put(LEASES, {"metadata": {"name": OPERATOR, "annotations": {ANNOTATION_SERVED: NAMESPACE}}})
    world.pool()
    async with operating(service_account=OPERATOR) as operator:
        await world.warm(1)
        operator.manager.membership.name(("others",))
        await world.until(lambda: not world.pods())
        await world.until(lambda: recorded(world) == "others")
        assert list(operator.manager.namespaces) == []
        operator.manager.membership.name((NAMESPACE,))
        await operator.manager.membership.check()
        await world.warm(1)
