"""ToolServers on the cluster: their manifests, waits for them, and executions that call them."""

import base64
import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.e2e.support import NAMESPACE, RELEASE, SYSTEM, Cluster, Gateway
from tests.support.pace import paced
from tests.support.until import eventually

IMAGE = os.environ.get("SERVERS_IMAGE", "localhost/mcp-exec-servers:dev")
RESOURCES = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}}
HARDENED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def tool_server(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "mcp-exec.dev/v1beta1",
        "kind": "ToolServer",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }


def stdio(*command: str, runtime: str | None = None, env: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """`spec.stdio` of a server of the servers' image; a value that is an object is a reference to a Secret."""
    variables = [
        {"name": name, **({"value": value} if isinstance(value, str) else {"secretKeyRef": value})}
        for name, value in (env or {}).items()
    ]
    return {
        "image": IMAGE,
        "command": list(command),
        "env": variables,
        "resources": RESOURCES,
        **({"runtimeClassName": runtime} if runtime else {}),
        **more,
    }


def secret(name: str, **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "stringData": data,
    }


def http_server(name: str, module: str, *, port: int = 8000) -> list[dict[str, Any]]:
    """A Deployment and a Service of a demo server that speaks streamable HTTP, as somebody else would run one."""
    labels = {"app": name}
    container = {
        "name": "server",
        "image": IMAGE,
        "command": ["python3", "-m", module, "--http", str(port)],
        "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 2},
        "resources": RESOURCES,
        "securityContext": HARDENED,
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    pod = {
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"selector": labels, "ports": [{"port": port}]},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
    ]


def statuses(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """The status of every ToolServer, by name."""
    found = cluster.select("ToolServer")
    return {item["metadata"]["name"]: item.get("status", {}) for item in found}


@contextmanager
def running(cluster: Cluster, *manifests: dict[str, Any], seconds: float = 300) -> Iterator[None]:
    """Applies manifests and waits until the ToolServers among them have listed their tools; takes all away again."""
    names = [each["metadata"]["name"] for each in manifests if each["kind"] == "ToolServer"]
    try:
        cluster.apply(*manifests)

        def missing() -> dict[str, Any]:
            now = statuses(cluster)
            return {name: now.get(name) for name in names if not (now.get(name) or {}).get("available")}

        eventually(lambda: not missing() or None, seconds=seconds, every=1, what=f"{names} are available")
        yield
    finally:
        for each in manifests:
            cluster.delete(each["kind"], each["metadata"]["name"], wait=False)


@contextmanager
def approver(cluster: Cluster, url: str) -> Iterator[httpx.Client]:
    """A client of the gateway whose API key may decide on approvals; the key is gone afterwards."""
    key = f"mcpx_{secrets.token_urlsafe(32)}"
    entry = {"sha256": hashlib.sha256(key.encode()).hexdigest(), "namespace": NAMESPACE, "approver": True}
    patch_keys(cluster, {"approver": base64.b64encode(json.dumps(entry).encode()).decode()})
    try:
        headers = {"Authorization": f"Bearer {key}"}
        with httpx.Client(base_url=url, headers=headers, timeout=paced(60), trust_env=False) as client:
            eventually(lambda: client.get("/v1/executions").status_code == 200, what="the new key is known")
            yield client
    finally:
        patch_keys(cluster, {"approver": None})


def patch_keys(cluster: Cluster, data: dict[str, str | None]) -> None:
    cluster.merge("Secret", f"{RELEASE}-api-keys", {"data": data}, namespace=SYSTEM)


@dataclass(frozen=True, kw_only=True)
class Agent:
    """Runs code with tools, in one pool."""

    cluster: Cluster
    gateway: Gateway
    pool: str
    defaults: dict[str, Any] = field(default_factory=lambda: {"timeoutSeconds": 110})

    def run(self, code: str, *tools: str, **spec: Any) -> dict[str, Any]:
        """The execution, when it has ended."""
        spec = {**self.defaults, "poolRef": {"name": self.pool}, "tools": list(tools), **spec}
        return self.gateway.run(code, wait=110, **spec)

    def value(self, code: str, *tools: str, **spec: Any) -> Any:
        """The result of code that must succeed."""
        done = self.run(code, *tools, **spec)
        assert done["phase"] == "Succeeded", str(done)
        return done["output"]["result"]

    def start(self, code: str, *tools: str, **spec: Any) -> str:
        """The name of an execution that has begun, whoever waits for it."""
        body = {**self.defaults, "poolRef": {"name": self.pool}, "tools": list(tools), "code": code, **spec}
        response = self.gateway.client.post("/v1/executions", params={"wait": "0"}, json=body)
        assert response.status_code == 202, response.text
        return str(response.json()["name"])

    def approval(self, name: str, *, seconds: float = 60) -> dict[str, Any]:
        """The execution's approval that waits for somebody's word, once there is one."""

        def pending() -> dict[str, Any] | None:
            status = self.cluster.get("CodeExecution", name).get("status", {})
            return next((each for each in status.get("approvals", []) if each["state"] == "Pending"), None)

        found = eventually(pending, seconds=seconds, every=0.2, what=f"{name} asks for consent")
        assert found is not None
        return found
