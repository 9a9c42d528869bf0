"""The objects of a served namespace: as the chart, the operator and the gateway make them, and an account's own."""

from dataclasses import replace
from typing import Any, Final

from tests.component.accounts.server import Object, Server

from mcp_exec_api.constants import API_VERSION, LABEL_CALLER, LABEL_NAME, SANDBOX_NAME
from mcp_exec_api.sandbox_pool import SandboxPoolSpec
from mcp_exec_api.tool_server import Stdio
from mcp_exec_operator.cluster.namespaces.claims import CLAIM
from mcp_exec_operator.core.pods.manifest import PodIdentity, PoolIdentity, build_pod
from mcp_exec_operator.core.pods.network_policy import (
    ReleasePods,
    build_base_policy,
    build_namespace_policy,
    build_policy,
)
from mcp_exec_operator.features.tools.manifests import (
    BridgeImage,
    ServerIdentity,
    build_deployment,
    build_server_policy,
    workload_labels,
)

NAMESPACE: Final = "agents"
SYSTEM: Final = "mcp-exec-system"
OPERATOR, GATEWAY = (f"system:serviceaccount:{SYSTEM}:mcp-exec-{name}" for name in ("operator", "gateway"))
POOL: Final = "default"
SANDBOX: Final = "default-abcdef"
SERVER: Final = "files"
EXECUTION: Final = "running"
SANDBOX_LABELS: Final = {LABEL_NAME: SANDBOX_NAME}
SERVER_LABELS: Final = workload_labels(SERVER)
LABELS: Final = {"app": "own"}
_DIGEST: Final = "0" * 64
_STDIO: Final = {"image": "none.invalid/files:1", "command": ["files"]}
_RELEASE: Final = ReleasePods(namespace=SYSTEM, instance="mcp-exec")
_HARDENED: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
POD_SPEC: Final = {
    "automountServiceAccountToken": False,
    "containers": [{"name": "main", "image": "none.invalid/own:1", "securityContext": _HARDENED}],
}


def named(version: str, kind: str, name: str, **parts: Any) -> Object:
    """Return an object of the served namespace."""
    metadata = {"name": name, "namespace": NAMESPACE} | parts.pop("metadata", {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **parts}


def of_project(kind: str, name: str, spec: Object, **metadata: Any) -> Object:
    """Return an object of mcp-exec."""
    return named(API_VERSION, kind, name, metadata=metadata, spec=spec)


def select(labels: dict[str, str]) -> Object:
    """Return a selector by labels."""
    return {"matchLabels": labels}


def workload(
    version: str,
    kind: str,
    name: str,
    *,
    spec: Object | None = None,
    restart: str = "Always",
    labels: dict[str, str] | None = None,
) -> Object:
    """Return what runs the pods of an account. `labels` are those of its pods besides the account's own."""
    template = {"metadata": {"labels": LABELS | (labels or {})}, "spec": POD_SPEC | {"restartPolicy": restart}}
    return named(version, kind, name, spec={"template": template} | (spec or {}))


def make_sandboxes(server: Server) -> None:
    """Make what the operator makes for a pool: its NetworkPolicies and a sandbox."""
    found = server.send("GET", f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/sandboxpools/{POOL}")
    pool = PoolIdentity(namespace=NAMESPACE, name=POOL, uid=found["metadata"]["uid"])
    server.create(build_namespace_policy(NAMESPACE), user=OPERATOR)
    base = server.create(build_base_policy(pool=pool), user=OPERATOR)
    server.create(build_policy(pool=pool, release=_RELEASE, broker=True), user=OPERATOR)
    spec = SandboxPoolSpec.model_validate(found["spec"])
    pod = PodIdentity(name=SANDBOX, token_sha256=_DIGEST, uid=100_000)
    pool = replace(pool, policy_uid=base["metadata"]["uid"])
    server.create(build_pod(spec=spec, pool=pool, pod=pod, template_hash="a").body, user=OPERATOR)


def make_stdio(server: Server) -> None:
    """Make what the operator makes for a stdio server."""
    made = server.create(of_project("ToolServer", SERVER, {"stdio": _STDIO}))
    owner = ServerIdentity(namespace=NAMESPACE, name=SERVER, uid=made["metadata"]["uid"])
    stdio = Stdio.model_validate(_STDIO)
    policy = server.create(build_server_policy(server=owner, stdio=stdio, release=_RELEASE), user=OPERATOR)
    deployment = build_deployment(
        server=owner, stdio=stdio, bridge=BridgeImage(image="none.invalid/bridge:1"),
        secrets="", policy_uid=policy["metadata"]["uid"],
    )  # fmt: skip
    server.create(deployment, user=OPERATOR)


def make_claim(server: Server) -> None:
    """Make the claim of the namespace as an operator does."""
    spec = {"holderIdentity": f"{SYSTEM}/mcp-exec-operator", "leaseDurationSeconds": 300}
    server.create(named("coordination.k8s.io/v1", "Lease", CLAIM, spec=spec), user=OPERATOR)


def make_execution(server: Server) -> None:
    """Make an execution as the gateway does."""
    server.create(of_project("CodeExecution", EXECUTION, {"code": "1"}, labels={LABEL_CALLER: "key.a"}), user=GATEWAY)
