"""Stdio servers: their Deployment, NetworkPolicy, pod and status."""

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
from mcp_exec_operator.features.tools import controller
from mcp_exec_operator.features.tools.manifests import ANNOTATION_TOKEN, workload_labels

Operating = Callable[..., Any]
DEPLOYMENTS = resource_path("deployments", namespace=NAMESPACE, group="apps/v1")
SECRETS = resource_path("secrets", namespace=NAMESPACE)
CONFIG_MAPS = resource_path("configmaps", namespace=NAMESPACE)
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


def start_pod(world: World, name: str = "ts-git-1", *, ip: str = "10.1.0.1", ready: bool = True) -> Object:
    """Create a pod of the Deployment, as its controller and the kubelet do, and return it as stored."""
    template = deployment(world)["spec"]["template"]
    conditions = [{"type": "Ready", "status": str(ready)}]
    status = {"phase": "Running", "podIP": ip, "conditions": conditions}
    metadata = {**template["metadata"], "name": name} | world.pods().get(name, {}).get("metadata", {})
    world.put(PODS, {"metadata": metadata, "spec": {**template["spec"], "nodeName": "n"}, "status": status})
    world.merge(DEPLOYMENTS, "ts-git", {"status": {"observedGeneration": 1, "readyReplicas": int(ready)}})
    return world.pods()[name]


def uid_of(world: World, name: str = "ts-git-1") -> str:
    return str(world.pods()[name]["metadata"]["uid"])


def accepts(world: World, key: bytes = KEY, name: str = "ts-git-1") -> bool:
    """Return whether a pod has the digest of its token, as a key makes it."""
    token = bridge_token(key=key, namespace=NAMESPACE, name="git", pod=uid_of(world, name))
    annotations = world.pods()[name]["metadata"].get("annotations") or {}
    return bool(annotations.get(ANNOTATION_TOKEN) == token_digest(token))


async def test_a_stdio_server_has_a_network_policy_and_a_pod_whose_address_is_called(
    world: World, running: Operating
) -> None:
    add(world)
    async with running():
        await world.until(lambda: workload(world))
        assert (workload(world)["ready"], workload(world)["reason"]) == (False, "Starting")
        start_pod(world, ready=False)
        await world.until(lambda: accepts(world), what="the pod has the digest of its token before it is ready")
        assert not workload(world)["ready"]
        start_pod(world)
        await world.until(lambda: workload(world).get("ready"))
    assert workload(world) == {"ready": True, "address": "10.1.0.1:8083", "podUid": uid_of(world)}
    assert ANNOTATION_TOKEN not in str(deployment(world)["spec"]["template"]["metadata"])
    token = bridge_token(key=KEY, namespace=NAMESPACE, name="git", pod=uid_of(world))
    assert token not in str(world.collections)
    assert "ts-git" not in str(world.collections.get(resource_path("services", namespace=NAMESPACE)))
    uid = world.collections[TS]["git"]["metadata"]["uid"]
    for collection in (DEPLOYMENTS, POLICIES):
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
        await world.until(lambda: workload(world))
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
        await world.until(lambda: workload(world))
        start_pod(world)
        await world.until(lambda: workload(world).get("ready"))
        before, looked = operator.writes(), len(world.asked("GET", "/deployments/ts-git"))
        await world.until_asked(lambda: len(world.asked("GET", "/deployments/ts-git")) > looked + 1)
        after = operator.writes()
    assert (
        after.get("tool-server") == before.get("tool-server") == 3
    )  # the policy, the Deployment, the digest of the pod
    assert after.get("tool-server-status") == before.get("tool-server-status")


async def test_a_server_that_becomes_one_of_http_loses_its_pod(world: World, running: Operating) -> None:
    add(world)
    async with running():
        await world.until(lambda: workload(world))
        add(world, generation=2, url="https://git.example/mcp")
        await world.until(lambda: not workload(world))
    for collection in (DEPLOYMENTS, POLICIES):
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


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
async def test_another_bundle_of_the_company_means_another_pod(world: World, running: Operating, kind: str) -> None:
    path = {"ConfigMap": CONFIG_MAPS, "Secret": SECRETS}[kind]
    world.put(path, {"metadata": {"name": "company"}, "data": {"ca.crt": "b25l"}})
    add(world)

    def said() -> str:
        return str(deployment(world)["spec"]["template"]["metadata"]["annotations"]["mcp-exec.dev/secrets"])

    async with running(servers_ca_bundle={"kind": kind, "name": "company", "key": "ca.crt"}):
        await world.until(lambda: deployment(world))
        before = said()
        world.merge(path, "company", {"metadata": {"annotations": {"synced": "again"}}, "data": {"other": "eA=="}})
        asked = len(world.asked("GET", "/company"))
        await world.until_asked(lambda: len(world.asked("GET", "/company")) > asked + 1)
        assert said() == before
        world.merge(path, "company", {"data": {"ca.crt": "dHdv"}})
        await world.until(lambda: said() != before)


async def test_a_bundle_that_the_operator_may_not_read_prevents_no_server(world: World, running: Operating) -> None:
    world.faults += [Fault("GET", f"{CONFIG_MAPS}/company", 403) for _ in range(1000)]
    add(world)
    async with running(servers_ca_bundle={"kind": "ConfigMap", "name": "company", "key": "ca.crt"}):
        await world.until(lambda: deployment(world))


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
    world.put(DEPLOYMENTS, {"metadata": {"name": "ts-git"}, "spec": {"replicas": 3}})
    add(world)
    async with running():
        await world.until(lambda: workload(world).get("reason") == "NameTaken")
    assert deployment(world)["spec"] == {"replicas": 3}


async def test_a_server_whose_requests_hang_delays_no_other(world: World, running: Operating) -> None:
    world.hanging.add("/ts-a")
    names = [f"git-{number}" for number in range(8)]
    for name in ("a", *names):
        add(world, name)
    async with running():
        await world.until(lambda: all(workload(world, name) for name in names))
        assert len(world.asked("GET", "/ts-a")) < 3  # the client tries three times, five seconds each


async def test_a_namespace_whose_requests_hang_delays_no_other(world: World, running: Operating) -> None:
    others = custom_resource_path(TOOL_SERVERS, namespace="other")
    for number in range(20):
        world.hanging.add(f"/other/networkpolicies/ts-{number}")
        world.put(others, {"metadata": {"name": str(number), "generation": 1}, "spec": {"stdio": STDIO}})
    add(world)
    async with running(namespaces=("other", NAMESPACE)):
        await world.until(lambda: workload(world))
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


STRANGER: Object = {
    "spec": {"containers": [{"name": "server", "image": "mine"}]},
    "status": {"phase": "Running", "podIP": "10.6.6.6", "conditions": [{"type": "Ready", "status": "True"}]},
}


async def test_a_pod_of_others_is_never_called_and_gets_no_digest(world: World, running: Operating) -> None:
    add(world)
    async with running(resync_seconds=3600):
        await world.until(lambda: workload(world))
        world.merge(DEPLOYMENTS, "ts-git", {"status": {"observedGeneration": 1, "readyReplicas": 1}})
        world.put(PODS, {"metadata": {"name": "thief", "labels": workload_labels("git")}, **STRANGER})
        await world.until(lambda: workload(world).get("reason") == "PodsOfOthers")
        assert (workload(world)["ready"], "thief" in workload(world)["message"]) == (False, True)
        start_pod(world)
        await world.until(lambda: workload(world).get("ready"))
        assert workload(world)["address"] == "10.1.0.1:8083"
    assert ANNOTATION_TOKEN not in str(world.pods()["thief"])


async def test_the_address_follows_the_pod_and_is_gone_with_it(world: World, running: Operating) -> None:
    add(world)
    async with running(resync_seconds=3600):
        await world.until(lambda: workload(world))
        start_pod(world)
        await world.until(lambda: workload(world).get("ready"))
        world.remove(PODS, "ts-git-1")
        await world.until(lambda: not workload(world)["ready"])
        assert (workload(world).get("address"), workload(world).get("podUid")) == (None, None)
        start_pod(world, "ts-git-2", ip="fd00::2")
        await world.until(lambda: workload(world).get("ready"))
        assert workload(world) == {
            "ready": True,
            "address": "[fd00::2]:8083",
            "podUid": uid_of(world, "ts-git-2"),
        }


@pytest.mark.parametrize("what", ["image", "digest"])
async def test_a_pod_that_somebody_alters_is_not_called_or_gets_its_digest_back(
    world: World, running: Operating, what: str
) -> None:
    add(world)
    async with running(resync_seconds=3600):
        await world.until(lambda: workload(world))
        start_pod(world)
        await world.until(lambda: workload(world).get("ready") and accepts(world))
        if what == "digest":
            world.merge(PODS, "ts-git-1", {"metadata": {"annotations": {ANNOTATION_TOKEN: "0" * 64}}})
            await world.until(lambda: accepts(world))
        else:
            spec = world.pods()["ts-git-1"]["spec"]
            containers = [{**spec["containers"][0], "image": "mine"}]
            world.merge(PODS, "ts-git-1", {"spec": {"containers": containers}})
            await world.until(lambda: workload(world).get("reason") == "PodsOfOthers")


async def test_a_deleted_or_altered_policy_of_a_server_is_put_back_at_once(world: World, running: Operating) -> None:
    add(world)
    async with running(resync_seconds=3600):
        await world.until(lambda: workload(world) and "ts-git" in world.collections.get(POLICIES, {}))
        before = world.collections[POLICIES]["ts-git"]
        world.remove(POLICIES, "ts-git")
        await world.until(lambda: "ts-git" in world.collections[POLICIES])
        stored = world.collections[POLICIES]["ts-git"]
        meta = {**stored["metadata"], "generation": 7}
        world.put(POLICIES, {**stored, "metadata": meta, "spec": {**stored["spec"], "egress": [{}]}})
        await world.until(lambda: world.collections[POLICIES]["ts-git"]["spec"] == before["spec"])


async def test_the_policy_of_a_server_is_deleted_after_its_pod(world: World, running: Operating) -> None:
    """The garbage collector does it, by the policy's finalizer and the Deployment's owners."""
    add(world)
    async with running():
        await world.until(lambda: workload(world))
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
