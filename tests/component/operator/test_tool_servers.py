"""Stdio servers: their Deployment, Service, NetworkPolicy and status."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.component.operator.brokers import SERVICE, running_broker
from tests.component.operator.test_tools import TS
from tests.support.api_server import Fault
from tests.support.world import KEY, NAMESPACE, PODS, POLICIES, World

from mcp_exec_api.constants import TOOL_SERVERS
from mcp_exec_common.kube.client import custom_resource_path, resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.supervisor.tokens import bridge_token, token_digest
from mcp_exec_operator.toolservers import controller
from mcp_exec_operator.toolservers.manifests import ANNOTATION_TOKEN, workload_labels

Operating = Callable[..., Any]
DEPLOYMENTS = resource_path("deployments", namespace=NAMESPACE, group="apps/v1")
SERVICES = resource_path("services", namespace=NAMESPACE)
SECRETS = resource_path("secrets", namespace=NAMESPACE)
STDIO: Object = {"image": "example.invalid/git:1", "command": ["mcp-server-git"]}


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "_MIN_INTERVAL_SECONDS", 0.05)
    monkeypatch.setattr(controller, "_STARTING_INTERVAL_SECONDS", 0.1)


@pytest.fixture
async def running(world: World, operating: Operating) -> AsyncIterator[Operating]:
    """Run an operator with a broker and the image of the servers."""
    async with running_broker(world):
        yield lambda **changes: operating(
            **({"broker_service": SERVICE, "servers_image": "example.invalid/servers:1"} | changes)
        )


def add(world: World, name: str = "git", *, generation: int = 1, **spec: Any) -> None:
    known = world.collections.get(TS, {}).get(name, {"metadata": {"name": name}})
    meta = {**known["metadata"], "generation": generation}
    world.put(TS, {**known, "metadata": meta, "spec": spec or {"stdio": STDIO}})


def workload(world: World, name: str = "git") -> Object:
    return (world.collections[TS][name].get("status") or {}).get("workload") or {}


def deployment(world: World) -> Object:
    return world.collections.get(DEPLOYMENTS, {}).get("ts-git") or {}


async def test_a_stdio_server_has_a_pod_a_service_and_a_network_policy(world: World, running: Operating) -> None:
    add(world)
    async with running():
        await world.until(lambda: workload(world).get("address"))
        assert workload(world) == {"ready": False, "address": "10.0.0.7:8083", "reason": "Starting"} | {
            "message": "the pod is not ready yet"
        }
        status = {"observedGeneration": 1, "readyReplicas": 1}
        world.merge(DEPLOYMENTS, "ts-git", {"status": status})
        await world.until(lambda: workload(world).get("ready"))
    assert workload(world) == {"ready": True, "address": "10.0.0.7:8083"}
    token = bridge_token(key=KEY, namespace=NAMESPACE, name="git")
    assert deployment(world)["spec"]["template"]["metadata"]["annotations"][ANNOTATION_TOKEN] == token_digest(token)
    assert token not in str(deployment(world))
    uid = world.collections[TS]["git"]["metadata"]["uid"]
    for collection in (DEPLOYMENTS, SERVICES, POLICIES):
        assert world.collections[collection]["ts-git"]["metadata"]["ownerReferences"][0]["uid"] == uid


async def test_another_spec_changes_the_deployment(world: World, running: Operating) -> None:
    add(world)
    async with running():
        await world.until(lambda: deployment(world))
        add(world, generation=2, stdio={**STDIO, "image": "example.invalid/git:2"})
        await world.until(
            lambda: deployment(world)["spec"]["template"]["spec"]["containers"][0]["image"].endswith(":2")
        )


async def test_changes_by_others_are_undone(world: World, running: Operating) -> None:
    add(world)
    async with running():
        await world.until(lambda: workload(world).get("address"))
        meta, spec = deployment(world)["metadata"], deployment(world)["spec"]
        world.put(
            DEPLOYMENTS,
            {**deployment(world), "metadata": {**meta, "generation": 2}, "spec": {**spec, "replicas": 0}},
        )
        await world.until(lambda: deployment(world)["spec"]["replicas"] == 1)
        world.remove(POLICIES, "ts-git")
        await world.until(lambda: "ts-git" in world.collections[POLICIES])


async def test_nothing_is_written_again_where_nothing_changed(world: World, running: Operating) -> None:
    add(world)
    async with running() as operator:
        await world.until(lambda: workload(world).get("address"))
        world.merge(DEPLOYMENTS, "ts-git", {"status": {"observedGeneration": 1, "readyReplicas": 1}})
        await world.until(lambda: workload(world).get("ready"))
        before, looked = operator.writes(), len(world.asked("GET", "/deployments/ts-git"))
        await world.until_asked(lambda: len(world.asked("GET", "/deployments/ts-git")) > looked + 1)
        after = operator.writes()
    assert after.get("tool-server") == before.get("tool-server") == 3
    assert after.get("tool-server-status") == before.get("tool-server-status")


async def test_a_server_that_becomes_one_of_http_loses_its_pod(world: World, running: Operating) -> None:
    add(world)
    async with running():
        await world.until(lambda: workload(world).get("address"))
        add(world, generation=2, url="https://git.example/mcp")
        await world.until(lambda: not workload(world))
    for collection in (DEPLOYMENTS, SERVICES, POLICIES):
        assert "ts-git" not in world.collections[collection]


async def test_another_version_of_a_secret_means_another_pod(world: World, running: Operating) -> None:
    world.put(SECRETS, {"metadata": {"name": "git"}, "data": {}})
    reference = {"name": "TOKEN", "secretKeyRef": {"name": "git", "key": "token"}}
    add(world, stdio={**STDIO, "env": [reference]})

    def said() -> str:
        return str(deployment(world)["spec"]["template"]["metadata"]["annotations"]["mcp-exec.dev/secrets"])

    async with running():
        await world.until(lambda: deployment(world))
        before = said()
        world.merge(SECRETS, "git", {"data": {"token": "eA=="}})
        await world.until(lambda: said() != before)


@pytest.mark.parametrize(
    "metadata",
    [{"name": "release-key"}, {"name": "copied", "labels": {"app.kubernetes.io/name": "mcp-exec"}}],
    ids=lambda metadata: metadata["name"],
)
async def test_keys_of_a_release_never_get_into_a_servers_environment(
    world: World, running: Operating, metadata: dict[str, Any]
) -> None:
    world.put(SECRETS, {"metadata": metadata, "data": {"key": "a2V5"}})
    reference = {"name": "TOKEN", "secretKeyRef": {"name": metadata["name"], "key": "key"}}
    add(world, stdio={**STDIO, "env": [reference]})
    async with running():
        await world.until(lambda: workload(world).get("reason") == "SecretOfRelease")
    assert "ts-git" not in world.collections.get(DEPLOYMENTS, {})


async def test_the_status_says_why_a_pod_does_not_start(world: World, running: Operating) -> None:
    add(world)
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    async with running():
        await world.until(lambda: deployment(world))
        metadata = {"name": "ts-git-1", "labels": workload_labels("git")}
        world.put(PODS, {"metadata": metadata, "status": {"containerStatuses": [{"state": waiting}]}})
        await world.until(lambda: workload(world).get("reason") == "ImagePullFailed")
    assert workload(world)["message"] == "ImagePullBackOff: no such image"


async def test_the_pods_of_servers_are_no_sandboxes(world: World, running: Operating) -> None:
    world.pool()
    metadata = {"name": "ts-git-1", "labels": workload_labels("git")}
    world.put(PODS, {"metadata": metadata, "status": {"phase": "Running"}})
    async with running():
        await world.warm(1)
        resyncs = len(world.asked("GET", "/pods"))
        await world.until_asked(lambda: len(world.asked("GET", "/pods")) > resyncs + 2)
    assert "ts-git-1" in world.pods()


async def test_a_refused_write_shows_in_the_status_and_is_retried(world: World, running: Operating) -> None:
    world.faults.append(Fault("POST", "/deployments", 403, "exceeded quota"))
    add(world)
    async with running():
        await world.until(lambda: workload(world).get("reason") == "Refused")
        assert "exceeded quota" in workload(world)["message"]
        await world.until(lambda: workload(world).get("reason") == "Starting")


async def test_a_name_that_is_taken_is_left_alone(world: World, running: Operating) -> None:
    world.put(SERVICES, {"metadata": {"name": "ts-git"}, "spec": {"clusterIP": "10.0.0.1"}})
    add(world)
    async with running():
        await world.until(lambda: workload(world).get("reason") == "NameTaken")
    assert world.collections[SERVICES]["ts-git"]["spec"] == {"clusterIP": "10.0.0.1"}
    assert not deployment(world)


async def test_a_server_whose_requests_hang_delays_no_other(world: World, running: Operating) -> None:
    world.hanging.add("/ts-a")
    names = [f"git-{number}" for number in range(8)]
    for name in ("a", *names):
        add(world, name)
    async with running():
        await world.until(lambda: all(workload(world, name).get("address") for name in names))
        assert len(world.asked("GET", "/ts-a")) < 3  # the client tries three times, five seconds each


async def test_a_namespace_whose_requests_hang_delays_no_other(world: World, running: Operating) -> None:
    others = custom_resource_path(TOOL_SERVERS, namespace="other")
    for number in range(20):
        world.hanging.add(f"/other/networkpolicies/ts-{number}")
        world.put(others, {"metadata": {"name": str(number), "generation": 1}, "spec": {"stdio": STDIO}})
    add(world)
    async with running(namespaces=("other", NAMESPACE)):
        await world.until(lambda: workload(world).get("address"))
        assert len(world.asked("GET", "/other/networkpolicies/ts-0")) < 3


@pytest.mark.parametrize(
    ("changes", "spec", "reason"),
    [
        ({"servers_image": ""}, {"stdio": STDIO}, "NoServersImage"),
        ({}, {"stdio": {**STDIO, "env": [{"name": "MCP_EXEC_PORT", "value": "1"}]}}, "InvalidSpec"),
        ({}, {"stdio": STDIO, "url": "http://x"}, "InvalidSpec"),
        ({}, {"stdio": {**STDIO, "dataSize": "much"}}, "InvalidSpec"),
    ],
)
async def test_a_server_that_can_not_be_run_says_why(
    world: World, running: Operating, changes: Object, spec: Object, reason: str
) -> None:
    add(world, **spec)
    async with running(**changes):
        await world.until(lambda: workload(world).get("reason") == reason)
    assert not deployment(world)


async def test_a_server_with_a_pod_of_others_behind_its_service_is_not_called(world: World, running: Operating) -> None:
    add(world)
    async with running(resync_seconds=3600):
        await world.until(lambda: workload(world).get("address"))
        world.merge(DEPLOYMENTS, "ts-git", {"status": {"observedGeneration": 1, "readyReplicas": 1}})
        template = deployment(world)["spec"]["template"]
        own = {**template["metadata"], "name": "ts-git-1"}
        status = {"phase": "Running"}
        world.put(PODS, {"metadata": own, "spec": {**template["spec"], "nodeName": "n"}, "status": status})
        await world.until(lambda: workload(world).get("ready"))
        metadata = {"name": "thief", "labels": workload_labels("git")}
        world.put(PODS, {"metadata": metadata, "spec": {"containers": [{"name": "server", "image": "mine"}]}})
        await world.until(lambda: workload(world).get("reason") == "PodsOfOthers")
        assert (workload(world)["ready"], "thief" in workload(world)["message"]) == (False, True)
        assert "ts-git-1" not in workload(world)["message"]
        world.remove(PODS, "thief")
        await world.until(lambda: workload(world).get("ready"))


async def test_the_policy_of_a_server_is_deleted_after_its_pod(world: World, running: Operating) -> None:
    """The garbage collector does it, by the policy's finalizer and the Deployment's owners."""
    add(world)
    async with running():
        await world.until(lambda: workload(world).get("address"))
        policy = world.collections[POLICIES]["ts-git"]["metadata"]
        assert policy["finalizers"] == ["foregroundDeletion"]
        owners = {
            owner["uid"]: owner["blockOwnerDeletion"] for owner in deployment(world)["metadata"]["ownerReferences"]
        }
        assert owners == {world.collections[TS]["git"]["metadata"]["uid"]: False, policy["uid"]: True}
        add(world, generation=2, url="https://example.invalid/mcp")
        await world.until(lambda: "ts-git" not in world.collections[POLICIES])
    deletions = [
        seen.body["propagationPolicy"] for seen in world.seen if seen.method == "DELETE" and "ts-git" in seen.path
    ]
    assert set(deletions) == {"Foreground"}
