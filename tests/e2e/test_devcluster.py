"""A running devcluster: `up` changes nothing, `status` lists processes, policies hold, writes are audited.

`make e2e` leaves this file out on other clusters. That `down` leaves no trace is what .ci/run compares.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.e2e.support import ROOT, Cluster
from tests.support.pace import paced
from tests.support.until import eventually

RUN = Path("/run/devcluster")
IMAGE = "localhost/mcp-exec-sandbox:dev"
SERVE = "python3 -m http.server 8080"
# Takes no notice of being asked to end.
LINGER = "import signal, threading; signal.signal(signal.SIGTERM, signal.SIG_IGN); threading.Event().wait()"


def devcluster(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "hack/devcluster/devcluster"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=paced(120), check=False)


def pids() -> dict[str, str]:
    return {path.stem: path.read_text() for path in RUN.glob("*.pid")}


def manifest(name: str, *command: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": list(command),
        "workingDir": "/",
        "resources": {"limits": {"cpu": "500m", "memory": "64Mi"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 60, "automountServiceAccountToken": False},
    }


def policy(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }


class Pods:
    """A server and a client in a namespace of their own."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace

    def apply(self, *manifests: dict[str, Any]) -> None:
        for item in manifests:
            self.cluster.apply({**item, "metadata": {**item["metadata"], "namespace": self.namespace}})

    def address(self, name: str) -> str:
        return str(self.cluster.get("Pod", name, namespace=self.namespace)["status"]["podIP"])

    def reaches(self, address: str, port: int = 8080) -> bool:
        connect = f"import socket; socket.create_connection(({address!r}, {port}), timeout=1)"
        command = ("kubectl", "exec", "-n", self.namespace, "client", "--", "python3", "-c", connect)
        return self.cluster.run(*command, check=False).returncode == 0


@pytest.fixture(scope="module")
def pods(cluster: Cluster) -> Iterator[Pods]:
    namespace = f"devcluster-{uuid4().hex[:6]}"
    cluster.objects.create_namespace(namespace)
    found = Pods(cluster, namespace)
    found.apply(manifest("server", *SERVE.split()), manifest("client", "python3", "-c", LINGER))
    cluster.wait_for("Ready", "Pod", "server", "client", namespace=namespace, seconds=60)
    yield found
    left = cluster.names("Pod", namespace=namespace)
    cluster.objects.delete("Pod", *left, namespace=namespace, grace_seconds=0)
    cluster.delete("Namespace", namespace, wait=False)


@pytest.fixture
def policies(pods: Pods) -> Iterator[None]:
    """None before, none after."""
    yield
    left = pods.cluster.names("NetworkPolicy", namespace=pods.namespace)
    pods.cluster.delete("NetworkPolicy", *left, namespace=pods.namespace)


def test_loaded_images_stay_on_a_full_disk(cluster: Cluster) -> None:
    (node,) = cluster.names("Node", namespace=None)
    done = cluster.run("kubectl", "get", "--raw", f"/api/v1/nodes/{node}/proxy/configz")
    assert json.loads(done.stdout)["kubeletconfig"]["imageGCHighThresholdPercent"] == 100


def test_up_on_a_running_cluster_changes_nothing() -> None:
    before = pids()
    done = devcluster("up")
    assert (done.returncode, done.stdout.strip()) == (0, str(RUN / "admin.kubeconfig"))
    assert pids() == before


def test_status_names_every_process() -> None:
    done = devcluster("status")
    assert done.returncode == 0
    assert set(done.stdout.splitlines()) == {f"{name} running" for name in pids()}
    assert {"apiserver", "kubelet", "containerd", "netpol"} <= set(pids())


def test_an_image_that_stands_there_already_is_not_loaded_again() -> None:
    archive = ROOT / ".cache/images/sandbox.tar"
    assert devcluster("load", str(archive)).returncode == 0
    again = devcluster("load", str(archive))
    assert (again.returncode, again.stdout) == (0, "")


def test_an_archive_that_does_not_exist_is_named() -> None:
    done = devcluster("load", "/nowhere.tar")
    assert done.returncode == 1
    assert done.stderr == "devcluster: there is no archive /nowhere.tar.\n"


def test_writes_are_audited_with_user_and_agent(cluster: Cluster, pods: Pods) -> None:
    name = f"audited-{uuid4().hex[:6]}"
    cluster.kubectl("create", "configmap", name, "-n", pods.namespace)

    def written() -> dict[str, Any] | None:
        lines = [line for line in (RUN / "audit.log").read_text().splitlines() if name in line]
        return json.loads(lines[0]) if lines else None

    event = eventually(written, what="the audit log")
    assert event
    assert (event["verb"], event["level"], event["user"]["username"]) == ("create", "Metadata", "admin")
    assert event["userAgent"].startswith("kubectl")


def test_pods_are_bounded_in_processes(pods: Pods) -> None:
    uid = pods.cluster.get("Pod", "client", namespace=pods.namespace)["metadata"]["uid"]
    (limit,) = (path for path in Path("/sys/fs/cgroup").glob(f"**/pod{uid}/pids.max"))
    assert limit.read_text() == "1024\n"


def test_without_policies_pods_reach_each_other_and_the_api_server(pods: Pods) -> None:
    assert eventually(lambda: pods.reaches(pods.address("server")))
    assert pods.reaches("10.87.0.1", 6443)
    assert pods.reaches("10.96.0.1", 443)


@pytest.mark.usefixtures("policies")
def test_an_ingress_policy_closes_and_opens_a_pod(pods: Pods) -> None:
    server = pods.address("server")
    selected = {"podSelector": {"matchLabels": {"app": "server"}}}
    pods.apply(policy("closed", **selected))
    eventually(lambda: not pods.reaches(server), what="the closed server")
    client = {"podSelector": {"matchLabels": {"app": "client"}}}
    pods.apply(policy("open", **selected, ingress=[{"from": [client], "ports": [{"port": 8080}]}]))
    eventually(lambda: pods.reaches(server), what="the open server")


@pytest.mark.usefixtures("policies")
def test_an_egress_policy_holds_towards_pods_and_the_node(pods: Pods) -> None:
    pods.apply(policy("closed", podSelector={"matchLabels": {"app": "client"}}, policyTypes=["Egress"]))
    eventually(lambda: not pods.reaches(pods.address("server")), what="the way to the server")
    assert not pods.reaches("10.87.0.1", 6443)
    assert not pods.reaches("10.96.0.1", 443)


@pytest.mark.usefixtures("policies")
def test_a_terminating_pod_stays_behind_its_policy(pods: Pods) -> None:
    pods.apply(policy("closed", podSelector={"matchLabels": {"app": "client"}}, policyTypes=["Egress"]))
    server = pods.address("server")
    eventually(lambda: not pods.reaches(server), what="the way to the server")
    pods.cluster.delete("Pod", "client", namespace=pods.namespace, wait=False)
    assert pods.cluster.get("Pod", "client", namespace=pods.namespace)["metadata"]["deletionTimestamp"]
    assert not pods.reaches(server)
