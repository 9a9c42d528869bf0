"""The manifests of a stdio server: a Deployment of one pod with the bridge in it, its Service, its NetworkPolicy.

Pure functions of the ToolServer. No I/O, no clock, no chance.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Final

from mcp_exec_api.constants import (
    API_VERSION,
    BRIDGE_PORT,
    GROUP,
    LABEL_MANAGED_BY,
    LABEL_NAME,
    LABEL_TOOL_SERVER,
    MANAGED_BY,
)
from mcp_exec_api.quantity import parse_quantity
from mcp_exec_api.tool_server import Stdio, Variable
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.pods.manifest import label_value
from mcp_exec_operator.pods.network_policy import component_peer

TOOL_SERVER_NAME: Final = "mcp-exec-tool-server"
ANNOTATION_MANIFEST: Final = f"{GROUP}/manifest"
"""Of what is made here: the digest of what was asked for."""
ANNOTATION_SECRETS: Final = f"{GROUP}/secrets"
"""Of the pod: a digest of the versions of the Secrets in its environment: another version means another pod."""
_USER: Final = 65532
_BRIDGE: Final = "/mcp-exec"
_RESERVED: Final = "MCP_EXEC_"


@dataclass(frozen=True, kw_only=True)
class ServerIdentity:
    """The ToolServer that owns the manifests."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, kw_only=True)
class BridgeImage:
    """The image that the bridge comes from."""

    image: str
    pull_policy: str = "IfNotPresent"


def workload_name(name: str) -> str:
    """The name of a server's objects: a Service's, so a label of 63 characters at most that begins with a letter."""
    plain = f"ts-{name.replace('.', '-')}"
    if len(plain) <= 63 and "." not in name:
        return plain
    return f"{plain[:52].rstrip('-')}-{hashlib.sha256(name.encode()).hexdigest()[:10]}"


def workload_labels(name: str) -> dict[str, str]:
    """Labels that the server's pod has, and no other pod."""
    return {LABEL_MANAGED_BY: MANAGED_BY, LABEL_NAME: TOOL_SERVER_NAME, LABEL_TOOL_SERVER: label_value(name)}


def secret_names(stdio: Stdio) -> list[str]:
    """The Secrets that the server's environment refers to."""
    return sorted({each.secret_key_ref.name for each in stdio.env if each.secret_key_ref is not None})


def secrets_digest(versions: dict[str, str]) -> str:
    """A digest of the Secrets' versions, by name; of a Secret that is missing, an empty text."""
    return hashlib.sha256(json.dumps(versions, sort_keys=True).encode()).hexdigest()[:16]


def reserved_variables(stdio: Stdio) -> list[str]:
    """Variables that the server asks for and can't have, as they are the bridge's own."""
    return [each.name for each in stdio.env if each.name.startswith(_RESERVED)]


def build_deployment(
    *, server: ServerIdentity, stdio: Stdio, bridge: BridgeImage, token_sha256: str, secrets: str
) -> Object:
    """One pod: the bridge is copied into it, and then starts the server, once for each connection."""
    labels = workload_labels(server.name)
    pod: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostNetwork": False,
        "hostPID": False,
        "hostIPC": False,
        "terminationGracePeriodSeconds": 10,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "initContainers": [_installer(bridge)],
        "containers": [_container(stdio, token_sha256)],
        "volumes": _volumes(stdio),
    }
    # left out where there are none: a pod whose spec is as before is not replaced
    if stdio.image_pull_secrets:
        pod["imagePullSecrets"] = [secret.to_api() for secret in stdio.image_pull_secrets]
    if stdio.runtime_class_name:
        pod["runtimeClassName"] = stdio.runtime_class_name
    spec = {
        "replicas": 1,
        # of a server with data there are never two
        "strategy": {"type": "Recreate"},
        "revisionHistoryLimit": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels, "annotations": {ANNOTATION_SECRETS: secrets}}, "spec": pod},
    }
    return _object("apps/v1", "Deployment", server, spec)


def build_service(*, server: ServerIdentity) -> Object:
    """The address that the broker connects to."""
    spec = {
        "type": "ClusterIP",
        "selector": workload_labels(server.name),
        "ports": [{"name": "bridge", "port": BRIDGE_PORT, "targetPort": BRIDGE_PORT, "protocol": "TCP"}],
    }
    return _object("v1", "Service", server, spec)


def build_server_policy(*, server: ServerIdentity, stdio: Stdio, release_namespace: str) -> Object:
    """Ingress from the broker alone; egress as the ToolServer says, which by default is none."""
    spec = {
        "podSelector": {"matchLabels": workload_labels(server.name)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            {
                "from": [component_peer("broker", release_namespace=release_namespace)],
                "ports": [{"protocol": "TCP", "port": BRIDGE_PORT}],
            }
        ],
        "egress": list(stdio.egress),
    }
    return _object("networking.k8s.io/v1", "NetworkPolicy", server, spec)


def digest_of(wanted: Object) -> str:
    """What tells a manifest from that of another spec."""
    return str(wanted["metadata"]["annotations"][ANNOTATION_MANIFEST])


def _object(version: str, kind: str, server: ServerIdentity, spec: Object) -> Object:
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]
    owner = {"apiVersion": API_VERSION, "kind": "ToolServer", "name": server.name, "uid": server.uid}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {
            "name": workload_name(server.name),
            "namespace": server.namespace,
            "labels": workload_labels(server.name),
            "annotations": {ANNOTATION_MANIFEST: digest},
            "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": False}],
        },
        "spec": spec,
    }


def _security() -> Object:
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _installer(bridge: BridgeImage) -> Object:
    return {
        "name": "bridge",
        "image": bridge.image,
        "imagePullPolicy": bridge.pull_policy,
        "command": ["python3", "-m", "mcp_exec_servers.bridge", "install", _BRIDGE],
        "securityContext": _security(),
        "resources": {
            "limits": {"cpu": "500m", "memory": "128Mi", "ephemeral-storage": "64Mi"},
            "requests": {"cpu": "10m", "memory": "32Mi", "ephemeral-storage": "16Mi"},
        },
        "volumeMounts": [{"name": "bridge", "mountPath": _BRIDGE}],
    }


def _container(stdio: Stdio, token_sha256: str) -> Object:
    own = {
        "MCP_EXEC_TOKEN_SHA256": token_sha256,
        "MCP_EXEC_PORT": str(BRIDGE_PORT),
        "MCP_EXEC_MAX_SESSIONS": str(stdio.max_sessions),
    }
    mounts = [
        {"name": "bridge", "mountPath": _BRIDGE, "readOnly": True},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
    ]
    if stdio.data_size is not None:
        mounts.append({"name": "data", "mountPath": "/data"})
    return {
        "name": "server",
        "image": stdio.image,
        "command": ["python3", f"{_BRIDGE}/bridge.py", "serve", "--", *stdio.command],
        # the user has no home; a server's own word on it counts
        "env": [
            {"name": "HOME", "value": "/tmp"},  # noqa: S108
            *map(_variable, stdio.env),
            *({"name": name, "value": value} for name, value in own.items()),
        ],
        "ports": [{"name": "bridge", "containerPort": BRIDGE_PORT, "protocol": "TCP"}],
        "readinessProbe": {"tcpSocket": {"port": BRIDGE_PORT}, "periodSeconds": 5, "timeoutSeconds": 2},
        "resources": _resources(stdio),
        "securityContext": _security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }


def _resources(stdio: Stdio) -> Object:
    """As the spec says; `/data` counts as disk of the pod, and would be the end of it otherwise."""
    given = stdio.resources.to_api()
    if stdio.data_size is not None:
        disk = parse_quantity(given["limits"]["ephemeral-storage"]) + parse_quantity(stdio.data_size)
        given["limits"]["ephemeral-storage"] = str(int(disk))
    return given


def _variable(variable: Variable) -> Object:
    reference = variable.secret_key_ref
    if reference is None:
        return {"name": variable.name, "value": variable.value}
    return {"name": variable.name, "valueFrom": {"secretKeyRef": reference.to_api()}}


def _volumes(stdio: Stdio) -> list[Object]:
    sizes = {"bridge": "16Mi", "tmp": "256Mi"} | ({"data": stdio.data_size} if stdio.data_size is not None else {})
    return [{"name": name, "emptyDir": {"sizeLimit": size}} for name, size in sizes.items()]
