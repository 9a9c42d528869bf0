"""The cluster and the gateway, as end-to-end tests use them."""

import json
import os
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from kubernetes.client import CoreV1Api

from tests.e2e.objects import MERGE, STRATEGIC, Objects, wait_until_none
from tests.e2e.providers import Provider
from tests.support.pace import paced
from tests.support.pod_security import pods_of, violations
from tests.support.until import eventually

ROOT = Path(__file__).parents[2]
RELEASE = "mcp-exec"
SYSTEM = "mcp-exec-system"
NAMESPACE = "agents"
OPERATOR = f"{RELEASE}-operator"
SILENT_CHECKS = 5
"""How many checks of a forwarded port fail before it is forwarded again."""

T = TypeVar("T")
MakePool = Callable[..., dict[str, Any]]
"""Makes a pool of a name, with `warm` pods and whatever else of its spec, that is gone after the test."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster, by its kubeconfig."""

    kubeconfig: Path
    user: str | None = None
    """Whom `objects` impersonates; by default nobody."""

    @contextmanager
    def as_component(self, name: str) -> Iterator["Cluster"]:
        """Write objects as a component of the release, for what the admission policies refuse from everybody else."""
        acting = Cluster(kubeconfig=self.kubeconfig, user=f"system:serviceaccount:{SYSTEM}:{RELEASE}-{name}")
        try:
            yield acting
        finally:
            acting.objects.close()

    def run(self, *command: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=paced(600), check=False,
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{' '.join(command)}: {done.stderr or done.stdout}"
        return done

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.run("kubectl", *arguments, stdin=stdin).stdout

    def helm(self, *arguments: str) -> str:
        """Run Helm. A namespace that it would create exists before, and admits only pods of the level `restricted`."""
        changes = arguments[0] in ("install", "upgrade")
        if "--create-namespace" in arguments:
            labels = {"pod-security.kubernetes.io/enforce": "restricted"}
            metadata = {"name": arguments[arguments.index("--namespace") + 1], "labels": labels}
            self.objects.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        return self.run("helm", *arguments, *(self.helm_options if changes else ())).stdout

    @cached_property
    def helm_options(self) -> tuple[str, ...]:
        """What Helm 4 needs on Kubernetes before 1.25, which refuses to apply the CRDs' rules on the server."""
        minor = int(re.sub(r"\D", "", json.loads(self.kubectl("get", "--raw", "/version"))["minor"]))
        helm_4 = self.run("helm", "version", "--short").stdout.startswith("v4.")
        return ("--server-side=false",) if helm_4 and minor < 25 else ()

    @cached_property
    def username(self) -> str:
        """Name of the kubeconfig's user, or another one on Kubernetes before 1.28, which does not report it."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        path = f"/apis/{review['apiVersion']}/selfsubjectreviews"
        done = self.run("kubectl", "create", "--raw", path, "-f", "-", stdin=json.dumps(review), check=False)
        return str(json.loads(done.stdout)["status"]["userInfo"]["username"]) if done.returncode == 0 else "jane"

    @cached_property
    def objects(self) -> Objects:
        """The cluster's objects by the official client."""
        return Objects(self.kubeconfig, user=self.user)

    def get(self, kind: str, name: str, *, namespace: str | None = NAMESPACE) -> dict[str, Any]:
        """Return an object; `namespace` does nothing for kinds that have none."""
        return self.objects.get(kind, name, namespace=namespace)

    def select(
        self, kind: str, *, namespace: str | None = NAMESPACE, labels: str | None = None
    ) -> list[dict[str, Any]]:
        return self.objects.select(kind, namespace=namespace, labels=labels)

    def live_pods(self, labels: str, *, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
        """Return the pods that nobody has deleted. The kubelet may take a minute for one that ends."""
        pods = self.select("Pod", namespace=namespace, labels=labels)
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def names(self, kind: str, *, namespace: str | None = NAMESPACE, labels: str | None = None) -> set[str]:
        return {item["metadata"]["name"] for item in self.select(kind, namespace=namespace, labels=labels)}

    def merge(self, kind: str, name: str, patch: dict[str, Any], *, namespace: str | None = NAMESPACE) -> None:
        """Change an object by a merge patch."""
        self.objects.patch(kind, name, patch, namespace=namespace, way=MERGE)

    def delete(
        self, kind: str, *names: str, namespace: str | None = NAMESPACE, wait: bool = True, seconds: float = 120
    ) -> None:
        self.objects.delete(kind, *names, namespace=namespace, wait=wait, seconds=seconds)

    def wait_for(
        self, condition: str, kind: str, *names: str, namespace: str | None = NAMESPACE, seconds: float
    ) -> None:
        """Wait until a condition of the objects is True."""
        self.objects.wait_for(condition, kind, *names, namespace=namespace, seconds=seconds)

    def rolled_out(self, deployment: str, *, namespace: str | None = NAMESPACE, seconds: float) -> None:
        """Wait until all pods of a Deployment are of its newest template, and available."""

        def missing() -> dict[str, Any] | None:
            found = self.get("Deployment", deployment, namespace=namespace)
            status, replicas = found.get("status") or {}, found["spec"]["replicas"]
            counts = {status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")}
            done = status.get("observedGeneration") == found["metadata"]["generation"] and counts == {replicas}
            return None if done else status

        wait_until_none(missing, seconds=seconds, what=f"Deployment {deployment} is rolled out")

    def logs(self, pod: str, *, namespace: str = NAMESPACE) -> str:
        return str(CoreV1Api(self.objects.api).read_namespaced_pod_log(pod, namespace))

    def apply(self, *manifests: dict[str, Any]) -> None:
        """Apply manifests. Pods in the release's namespaces must be admitted by a newer Kubernetes, too."""
        for manifest in manifests:
            if manifest["metadata"].get("namespace") in (NAMESPACE, SYSTEM):
                refused = [problem for pod in pods_of(manifest) for problem in violations(pod)]
                assert not refused, f"{manifest['metadata']['name']}: {refused}"
        for manifest in manifests:
            self.objects.apply(manifest)

    def refusal(self, manifest: dict[str, Any]) -> str:
        """Return the API server's message about a manifest that it must refuse."""
        return self.objects.refusal(manifest)

    @property
    def records_accounts(self) -> bool:
        """Whether admission policies write the account into what it creates."""
        command = ("kubectl", "get", "mutatingadmissionpolicies", f"{RELEASE}-creators")
        return self.run(*command, check=False).returncode == 0

    def execute(self, *, name: str, seconds: float = 90, **spec: Any) -> dict[str, Any]:
        """Apply a CodeExecution, wait for its end and return its status."""
        self.apply(execution_manifest(name=name, **spec))
        return self.finished(name, seconds=seconds)

    def finished(self, name: str, *, seconds: float = 90) -> dict[str, Any]:
        self.wait_for("Finished", "CodeExecution", name, seconds=seconds)
        return dict(self.get("CodeExecution", name)["status"])


def execution_manifest(*, name: str, namespace: str = NAMESPACE, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "mcp-exec.dev/v1beta1",
        "kind": "CodeExecution",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def pool_manifest(*, name: str, runtime: str | None, image: str, warm: int, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "mcp-exec.dev/v1beta1",
        "kind": "SandboxPool",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "image": image,
            "warm": {"min": warm},
            **({"runtimeClassName": runtime} if runtime else {}),
            **spec,
        },
    }


def require_gvisor(cluster: Cluster, provider: Provider) -> None:
    """Fail if the cluster must have gVisor, else skip."""
    if provider.promises_gvisor(cluster.select("Node")):
        pytest.fail(f"the {provider.name} cluster has no RuntimeClass gvisor, which it must have")
    pytest.skip("the cluster has no RuntimeClass gvisor")


def workers(cluster: Cluster) -> list[str]:
    """Return the names of the nodes that are ready and take any pod."""
    return sorted(
        node["metadata"]["name"]
        for node in cluster.select("Node")
        if not node["spec"].get("unschedulable")
        and not any(taint["effect"] != "PreferNoSchedule" for taint in node["spec"].get("taints") or [])
        and condition(node["status"], "Ready").get("status") == "True"
    )


def api_server(cluster: Cluster) -> list[tuple[str, int]]:
    """Return address and port of the API server's Service, then those of each server behind it."""
    service = cluster.get("Service", "kubernetes", namespace="default")["spec"]
    found = cluster.get("EndpointSlice", "kubernetes", namespace="default")
    servers = sorted(address for endpoint in found["endpoints"] for address in endpoint["addresses"])
    port = found["ports"][0]["port"]
    return [(service["clusterIP"], service["ports"][0]["port"]), *((address, port) for address in servers)]


def operator_lease(cluster: Cluster) -> dict[str, Any]:
    """Return the spec of the operators' Lease."""
    return dict(cluster.get("Lease", f"{RELEASE}-operator", namespace=SYSTEM)["spec"])


def leader(cluster: Cluster) -> str:
    """Return the leading operator's pod, or an empty text if there is none or its pod is terminating."""
    pod = str(operator_lease(cluster).get("holderIdentity") or "").rpartition("_")[0]
    found = cluster.select("Pod", namespace=SYSTEM, labels="app.kubernetes.io/component=operator")
    staying = {each["metadata"]["name"] for each in found if "deletionTimestamp" not in each["metadata"]}
    return pod if pod in staying else ""


def patch_operator(cluster: Cluster, container: dict[str, Any], *, replicas: int) -> None:
    """Change the operator's container and replicas. Return when one of the new pods leads."""
    patch = {"spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}}}
    cluster.objects.patch("Deployment", OPERATOR, patch, namespace=SYSTEM, way=STRATEGIC)
    cluster.rolled_out(OPERATOR, namespace=SYSTEM, seconds=180)
    eventually(lambda: leader(cluster), seconds=60, every=0.5, what="a new operator leads")


def condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return one condition of a status, empty if there is none of that type."""
    return next((each for each in status.get("conditions", []) if each["type"] == kind), {})


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """The gateway and an API key."""

    client: httpx.Client

    def run(self, code: str, *, wait: float = 90, headers: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
        response = self.client.post(
            "/v1/executions", params={"wait": str(wait)}, json={"code": code, **spec}, headers=headers
        )
        assert response.status_code == 200, response.text
        return dict(response.json())


def gateway_url(*, cluster: Cluster, provider: Provider, stack: ExitStack) -> str:
    """Return the gateway's URL: its Service if this machine is the cluster's node, else a forwarded port."""
    if not provider.runs_here:
        return stack.enter_context(forwarded(cluster))
    service = cluster.get("Service", f"{RELEASE}-gateway", namespace=SYSTEM)["spec"]
    return f"http://{service['clusterIP']}:{service['ports'][0]['port']}"


@contextmanager
def forwarded(cluster: Cluster) -> Iterator[str]:
    """Forward a port of this machine to the gateway, and again to another pod when the first is gone or silent."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    over = threading.Event()

    def forward() -> None:
        while not over.is_set():
            process = subprocess.Popen(
                ["kubectl", "port-forward", "-n", SYSTEM, f"service/{RELEASE}-gateway", f"{port}:80"],
                stdout=subprocess.DEVNULL, env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
            )  # fmt: skip
            failures = 0
            # the connection to the pod of a lost node stays open
            while process.poll() is None and failures < SILENT_CHECKS and not over.wait(1):
                failures = 0 if is_healthy(f"http://127.0.0.1:{port}") else failures + 1
            process.terminate()
            process.wait(timeout=paced(10))

    thread = threading.Thread(target=forward, daemon=True)
    thread.start()
    try:
        eventually(lambda: answers("127.0.0.1", port), what="the gateway's port is forwarded")
        yield f"http://127.0.0.1:{port}"
    finally:
        over.set()
        thread.join(timeout=paced(20))


def is_healthy(url: str) -> bool:
    """Return whether a gateway answers, without a proxy of this machine."""
    try:
        with httpx.Client(timeout=5, trust_env=False) as client:
            return client.get(f"{url}/healthz").status_code == 200
    except httpx.HTTPError:
        return False


def answers(host: str, port: int) -> bool:
    """Return whether an address accepts connections."""
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True
