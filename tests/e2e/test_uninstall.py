"""Code that tries to connect all the time, while what isolates it is deleted in every way. It never gets out.

A release of its own, so that no other test is disturbed.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from kubernetes.client import CoreV1Api

from tests.e2e.support import ROOT, Cluster, api_server, execution_manifest
from tests.support.pace import paced
from tests.support.until import eventually

# An installation takes as long as the images take to come.
pytestmark = pytest.mark.timeout(900)
GONE_SECONDS = paced(420)
"""A kubelet 1.20 that ends a pod whose volumes it mounts waits for them first: two minutes, perhaps twice."""

READ_SECONDS = paced(180)
"""Time for the kubelet to write the changed namespaces into the operator's pod."""

RELEASE, SYSTEM, FREE = "leaving", "leaving-system", "leaving-free"
FIRST, REMOVED, DELETED = "leaving-first", "leaving-removed", "leaving-deleted"
FULLNAME = f"{RELEASE}-mcp-exec"
BASE = "mcp-exec-base-default"
SANDBOXES = "app.kubernetes.io/name=mcp-exec-sandbox"
LISTENER = """
import socket
with socket.create_server(("", 9000)) as server:
    while True:
        connection, peer = server.accept()
        print(peer[0], flush=True)
        connection.close()
"""
ATTACK = """
import socket
print("begun", flush=True)
while True:
    for host, port in context["targets"]:
        try:
            socket.create_connection((host, port), timeout=0.2).close()
            print("open", host, flush=True)
        except OSError:
            pass
"""


@dataclass(frozen=True, kw_only=True)
class Leaving:
    """The release, and the pod that the attacks try to reach."""

    cluster: Cluster
    values: tuple[str, ...]

    def install(self, *namespaces: str) -> None:
        self.cluster.helm(
            "upgrade", "--install", RELEASE, str(ROOT / "charts/mcp-exec"), "--namespace", SYSTEM,
            "--create-namespace", "--wait", "--timeout", "4m", *self.values,
            f"--set=namespaces={{{','.join(namespaces)}}}",
        )  # fmt: skip

    def uninstall(self, *options: str, check: bool = True) -> None:
        self.cluster.run("helm", "uninstall", RELEASE, "--namespace", SYSTEM, *options, check=check)

    def attack(self, namespace: str, *, pool: str = "default") -> None:
        """Run code that tries to connect. Return once it does."""
        _, server, *_ = api_server(self.cluster)
        listener = self.cluster.get("Pod", "listener", namespace=FREE)["status"]["podIP"]
        targets = [[listener, 9000], [*server]]
        spec = {"code": ATTACK, "context": {"targets": targets}, "timeoutSeconds": 300, "poolRef": {"name": pool}}
        self.cluster.delete("CodeExecution", "attack", namespace=namespace)
        self.cluster.apply(execution_manifest(name="attack", namespace=namespace, **spec))

        def running() -> bool:
            pods = self.cluster.select("Pod", namespace=namespace, labels="mcp-exec.dev/state=busy")
            return len(pods) == 1

        eventually(running, seconds=120, every=0.2, what="the attack runs")

    def is_replaced(self, policy: str, uid: str) -> bool:
        found = self.cluster.objects.find("NetworkPolicy", policy, namespace=FIRST)
        return found is not None and found["metadata"]["uid"] != uid

    def connections(self) -> list[str]:
        """Return the addresses that have reached the listener."""
        return CoreV1Api(self.cluster.objects.api).read_namespaced_pod_log("listener", FREE).split()

    def finished(self, namespace: str) -> dict[str, Any]:
        self.cluster.wait_for("Finished", "CodeExecution", "attack", namespace=namespace, seconds=READ_SECONDS)
        status = dict(self.cluster.get("CodeExecution", "attack", namespace=namespace)["status"])
        assert "open" not in ((status.get("output") or {}).get("stdout") or "")
        return status

    def pods(self, namespace: str, *, pool: str = "default") -> set[str]:
        labels = f"{SANDBOXES},mcp-exec.dev/pool={pool}"
        return self.cluster.names("Pod", namespace=namespace, labels=labels)

    def emptied(self, namespace: str, *, pool: str = "default") -> None:
        """Wait until the pods of a pool are gone, and then its policies; until then the base policy stands."""

        def empty() -> bool:
            policies = self.cluster.names("NetworkPolicy", namespace=namespace)
            pods = self.pods(namespace, pool=pool)
            assert not pods or f"mcp-exec-base-{pool}" in policies, f"{pods} are left without a policy"
            return not pods and not {name for name in policies if name.endswith(f"-{pool}")}

        eventually(empty, seconds=GONE_SECONDS, every=0.2, what=f"no sandbox is left in {namespace}")


@pytest.fixture(scope="module")
def leaving(cluster: Cluster) -> Iterator[Leaving]:
    tag, sandbox = os.environ.get("TAG", "dev"), os.environ.get("SANDBOX_IMAGE", "localhost/mcp-exec-sandbox:dev")
    values = {
        "operator.image.repository": os.environ.get("OPERATOR_IMAGE", "localhost/mcp-exec-operator"),
        "images.tag": tag,
        "operator.replicas": "1",
        "gateway.image.repository": os.environ.get("GATEWAY_IMAGE", "localhost/mcp-exec-gateway"),
        "gateway.replicas": "1",
        "broker.enabled": "false",
        "pool.image": sandbox,
        "pool.warm.min": "1",
        "pool.runtimeClassName": "NodeDefault",
        "pool.resources.requests.cpu": "10m",
    }
    found = Leaving(cluster=cluster, values=tuple(f"--set={name}={value}" for name, value in values.items()))
    namespaces = (FREE, FIRST, REMOVED, DELETED, SYSTEM)
    # what an interrupted run has left
    found.uninstall(check=False)
    cluster.delete("Namespace", *namespaces, seconds=GONE_SECONDS)
    cluster.objects.create_namespace(FREE)
    container = {"name": "main", "image": sandbox, "command": ["python3", "-c", LISTENER]}
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "listener", "namespace": FREE},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [container | {"imagePullPolicy": "IfNotPresent"}],
            },
        }
    )
    found.install(FIRST, REMOVED, DELETED)
    cluster.wait_for("Ready", "Pod", "listener", namespace=FREE, seconds=60)
    yield found
    found.uninstall(check=False)
    cluster.delete("Namespace", *namespaces, wait=False)


@pytest.fixture(autouse=True)
def nothing_gets_out(leaving: Leaving) -> Iterator[None]:
    """The listener has received the connections of its own pod, and no other."""
    yield
    own = leaving.cluster.get("Pod", "listener", namespace=FREE)["status"]["podIP"]
    program = f"import socket; socket.create_connection(({own!r}, 9000)).close()"
    leaving.cluster.kubectl("exec", "listener", "-n", FREE, "--", "python3", "-c", program)
    eventually(leaving.connections, what="the listener reports a connection")
    assert set(leaving.connections()) <= {own, "127.0.0.1"}


def test_a_deleted_policy_comes_back_and_a_deleted_pool_ends_its_runs(leaving: Leaving) -> None:
    cluster = leaving.cluster
    leaving.attack(FIRST)
    for name in sorted(cluster.names("NetworkPolicy", namespace=FIRST)):
        before = cluster.get("NetworkPolicy", name, namespace=FIRST)["metadata"]["uid"]
        cluster.delete("NetworkPolicy", name, namespace=FIRST, wait=False)
        eventually(
            lambda name=name, uid=before: leaving.is_replaced(name, uid),  # type: ignore[misc]
            seconds=30, every=0.2, what=f"{name} exists again",
        )  # fmt: skip

    def owned() -> bool:
        uid = cluster.get("NetworkPolicy", BASE, namespace=FIRST)["metadata"]["uid"]
        pods = cluster.select("Pod", namespace=FIRST, labels=SANDBOXES)
        return all(uid in {owner["uid"] for owner in pod["metadata"].get("ownerReferences") or ()} for pod in pods)

    eventually(owned, seconds=30, every=0.2, what="the pods belong to the new policy")
    cluster.delete("SandboxPool", "default", namespace=FIRST, wait=False)
    leaving.emptied(FIRST)
    assert leaving.finished(FIRST)["phase"] == "Cancelled"


@pytest.mark.long
def test_an_upgrade_without_a_namespace_ends_its_runs_and_leaves_nothing_in_it(leaving: Leaving) -> None:
    cluster = leaving.cluster
    leaving.attack(REMOVED)
    leaving.install(FIRST, DELETED)
    leaving.emptied(REMOVED)
    assert leaving.finished(REMOVED)["phase"] == "Cancelled"
    for kind in ("SandboxPool", "Role", "ResourceQuota", "LimitRange"):
        assert not cluster.names(kind, namespace=REMOVED), kind
    # the operator deletes its last right after all else
    eventually(
        lambda: not cluster.names("RoleBinding", namespace=REMOVED), seconds=READ_SECONDS, what="no right is left"
    )
    assert not cluster.names("Skill", namespace=REMOVED)
    assert not cluster.names("NetworkPolicy", namespace=REMOVED)


def test_a_namespace_that_is_deleted_goes_without_help_and_lets_nothing_out(leaving: Leaving) -> None:
    leaving.attack(DELETED)
    leaving.cluster.delete("Namespace", DELETED, seconds=GONE_SECONDS)


def test_an_uninstallation_ends_all_runs_and_leaves_only_what_others_made(leaving: Leaving) -> None:
    cluster = leaving.cluster
    leaving.install(FIRST)  # its pool was deleted
    own = cluster.get("SandboxPool", "default", namespace=FIRST)
    spec = {"image": own["spec"]["image"], "resources": own["spec"]["resources"], "warm": {"min": 1}}
    meta = {"name": "own", "namespace": FIRST}
    cluster.apply({"apiVersion": own["apiVersion"], "kind": "SandboxPool", "metadata": meta, "spec": spec})
    cluster.wait_for("Ready", "SandboxPool", "own", namespace=FIRST, seconds=120)
    leaving.attack(FIRST)
    leaving.uninstall()
    assert leaving.finished(FIRST)["phase"] == "Cancelled"
    leaving.emptied(FIRST)
    assert cluster.names("SandboxPool", namespace=FIRST) == {"own"}
    (ready,) = cluster.get("SandboxPool", "own", namespace=FIRST)["status"]["conditions"]
    assert (ready["status"], ready["reason"]) == ("Unknown", "NotObserved")
    assert not leaving.pods(FIRST, pool="own")
    assert not cluster.names("Skill", namespace=FIRST)
    for namespace in (FIRST, SYSTEM):
        for kind in ("Role", "RoleBinding", "Job", "NetworkPolicy"):
            assert not {name for name in cluster.names(kind, namespace=namespace) if FULLNAME in name}, kind
    assert "mcp-exec-base" not in cluster.names("NetworkPolicy", namespace=FIRST)


@pytest.mark.long
def test_an_uninstallation_without_hooks_lets_nothing_out(leaving: Leaving) -> None:
    leaving.install(FIRST)
    leaving.attack(FIRST)
    leaving.uninstall("--no-hooks")
    leaving.emptied(FIRST)
