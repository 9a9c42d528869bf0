"""Manifests of a stdio server: a Deployment of one pod with the bridge in it, and its NetworkPolicy.

Pure functions of the ToolServer: no I/O, no clock, no random numbers.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from mcp_exec_api.constants import (
    API_VERSION,
    BRIDGE_PORT,
    GROUP,
    LABEL_MANAGED_BY,
    LABEL_NAME,
    LABEL_TOOL_SERVER,
    MANAGED_BY,
)
from mcp_exec_api.meta import explain_errors, parse_quantity
from mcp_exec_api.reasons.server import ServerReason
from mcp_exec_api.tool_server import Stdio, ToolServerSpec, Variable, Workload
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.core.pods.integrity import find_changes
from mcp_exec_operator.core.pods.manifest import label_value
from mcp_exec_operator.core.pods.network_policy import FOREGROUND, ReleasePods
from mcp_exec_operator.core.pods.status import (
    IMAGE_PULL_REASONS,
    NORMAL_WAITING_REASONS,
    get_condition,
    is_of_limit_range,
    is_over,
    is_terminating,
)
from mcp_exec_operator.features.tools.network import ServerNetwork
from mcp_exec_tools.text import shorten

TOOL_SERVER_NAME: Final = "mcp-exec-tool-server"
ANNOTATION_MANIFEST: Final = f"{GROUP}/manifest"
"""Annotation of every object built here: the digest of its spec."""
ANNOTATION_TOKEN: Final = f"{GROUP}/token-sha256"
"""Annotation of each pod, not of its template: the digest of its own token. The kubelet writes it into a file."""
ANNOTATION_SECRETS: Final = f"{GROUP}/secrets"
"""Annotation of the pod: a digest of the versions of its Secrets and its bundle, so that a changed one replaces the
pod."""
_USER: Final = 65532
_BRIDGE_FOLDER: Final = "/mcp-exec"
_DIGEST_FOLDER: Final = "/mcp-exec-token"
_DIGEST_FILE: Final = "sha256"
_RESERVED_PREFIX: Final = "MCP_EXEC_"
_NO_NETWORK: Final = ServerNetwork()


@dataclass(frozen=True, kw_only=True)
class ServerIdentity:
    """The ToolServer that owns the manifests."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, kw_only=True)
class BridgeImage:
    """The image that the bridge is copied from."""

    image: str
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    """Secrets of the server's namespace with credentials for it."""


def workload_name(name: str) -> str:
    """Return the name of a server's objects, which those of releases before fit, too: a Service's has no dot."""
    plain = f"ts-{name.replace('.', '-')}"
    if len(plain) <= 63 and "." not in name:
        return plain
    return f"{plain[:52].rstrip('-')}-{hashlib.sha256(name.encode()).hexdigest()[:10]}"


def workload_labels(name: str) -> dict[str, str]:
    """Return the labels that select the server's pods and no others."""
    return {LABEL_MANAGED_BY: MANAGED_BY, LABEL_NAME: TOOL_SERVER_NAME, LABEL_TOOL_SERVER: label_value(name)}


def secret_names(stdio: Stdio) -> list[str]:
    """Return the names of the Secrets that the server's environment refers to."""
    return sorted({variable.secret_key_ref.name for variable in stdio.env if variable.secret_key_ref is not None})


def secrets_digest(versions: dict[str, str]) -> str:
    """Return a digest of versions by name: of Secrets, and of the bundle. That of a missing one is empty."""
    return hashlib.sha256(json.dumps(versions, sort_keys=True).encode()).hexdigest()[:16]


def reserved_variables(stdio: Stdio) -> list[str]:
    """Return the variables in the server's spec whose names are reserved for the bridge."""
    return [variable.name for variable in stdio.env if variable.name.startswith(_RESERVED_PREFIX)]


def build_deployment(
    *,
    server: ServerIdentity,
    stdio: Stdio,
    bridge: BridgeImage,
    secrets: str,
    policy_uid: str = "",
    assign_user: bool = True,
    network: ServerNetwork = _NO_NETWORK,
) -> Object:
    """Build a Deployment of one pod: the bridge is copied into it and starts the server once per connection.

    Without `assign_user`, the cluster assigns the user and the group of its files. The Deployment also belongs to the
    server's NetworkPolicy, which Kubernetes therefore deletes after the pod.
    """
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
            "seccompProfile": {"type": "RuntimeDefault"},
            **({"runAsUser": _USER, "runAsGroup": _USER, "fsGroup": _USER} if assign_user else {}),
        },
        "initContainers": [network.extend_installer(_build_installer(bridge))],
        "containers": [_build_container(stdio, network)],
        "volumes": [*_build_volumes(stdio), *network.build_volumes()],
    }
    # absent if empty: the specs of older pods have no such field, and a changed spec replaces the pod
    if credentials := dict.fromkeys([*(secret.name for secret in stdio.image_pull_secrets), *bridge.pull_secrets]):
        pod["imagePullSecrets"] = [{"name": name} for name in credentials]
    if stdio.runtime_class_name:
        pod["runtimeClassName"] = stdio.runtime_class_name
    spec = {
        "replicas": 1,
        # two pods must never run at once: a server may have data
        "strategy": {"type": "Recreate"},
        "revisionHistoryLimit": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels, "annotations": {ANNOTATION_SECRETS: secrets}}, "spec": pod},
    }
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "name": workload_name(server.name)}
    blocked = policy | {"uid": policy_uid, "blockOwnerDeletion": True}
    return _build_object("apps/v1", "Deployment", server, spec, owners=[blocked] if policy_uid else [])


def build_server_policy(*, server: ServerIdentity, stdio: Stdio, release: ReleasePods) -> Object:
    """Build the NetworkPolicy: ingress from the broker only, egress as in the spec, by default none."""
    spec = {
        "podSelector": {"matchLabels": workload_labels(server.name)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            {
                "from": [release.select("broker")],
                "ports": [{"protocol": "TCP", "port": BRIDGE_PORT}],
            }
        ],
        "egress": list(stdio.egress),
    }
    policy = _build_object("networking.k8s.io/v1", "NetworkPolicy", server, spec)
    policy["metadata"]["finalizers"] = [FOREGROUND]
    return policy


def manifest_digest(manifest: Object) -> str:
    """Return the digest of a manifest's spec."""
    return str(manifest["metadata"]["annotations"][ANNOTATION_MANIFEST])


def _build_object(
    version: str, kind: str, server: ServerIdentity, spec: Object, *, owners: list[Object] | None = None
) -> Object:
    content = [spec, *(owners or [])]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    owner = {"apiVersion": API_VERSION, "kind": "ToolServer", "name": server.name, "uid": server.uid}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {
            "name": workload_name(server.name),
            "namespace": server.namespace,
            "labels": workload_labels(server.name),
            "annotations": {ANNOTATION_MANIFEST: digest},
            "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": False}, *(owners or [])],
        },
        "spec": spec,
    }


def _build_security_context() -> Object:
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _build_installer(bridge: BridgeImage) -> Object:
    return {
        "name": "bridge",
        "image": bridge.image,
        "imagePullPolicy": bridge.pull_policy,
        "command": ["python3", "-m", "mcp_exec_servers.bridge", "install", _BRIDGE_FOLDER],
        "securityContext": _build_security_context(),
        "resources": {
            "limits": {"cpu": "500m", "memory": "128Mi", "ephemeral-storage": "64Mi"},
            "requests": {"cpu": "10m", "memory": "32Mi", "ephemeral-storage": "16Mi"},
        },
        "volumeMounts": [{"name": "bridge", "mountPath": _BRIDGE_FOLDER}],
    }


def _build_container(stdio: Stdio, network: ServerNetwork) -> Object:
    bridge_variables = {
        "MCP_EXEC_TOKEN_FILE": f"{_DIGEST_FOLDER}/{_DIGEST_FILE}",
        "MCP_EXEC_PORT": str(BRIDGE_PORT),
        "MCP_EXEC_MAX_SESSIONS": str(stdio.max_sessions),
    }
    mounts = [
        {"name": "bridge", "mountPath": _BRIDGE_FOLDER, "readOnly": True},
        {"name": "token", "mountPath": _DIGEST_FOLDER, "readOnly": True},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
    ]
    if stdio.data_size is not None:
        mounts.append({"name": "data", "mountPath": "/data"})
    return {
        "name": "server",
        "image": stdio.image,
        "command": ["python3", f"{_BRIDGE_FOLDER}/bridge.py", "serve", "--", *stdio.command],
        # the user has no home; the server's own variables come later in the list and win
        "env": [
            {"name": "HOME", "value": "/tmp"},  # noqa: S108
            *network.build_variables(_BRIDGE_FOLDER),
            *map(_build_variable, stdio.env),
            *({"name": name, "value": value} for name, value in bridge_variables.items()),
        ],
        "ports": [{"name": "bridge", "containerPort": BRIDGE_PORT, "protocol": "TCP"}],
        "readinessProbe": {"tcpSocket": {"port": BRIDGE_PORT}, "periodSeconds": 5, "timeoutSeconds": 2},
        "resources": _build_resources(stdio),
        "securityContext": _build_security_context(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }


def _build_resources(stdio: Stdio) -> Object:
    """Return the spec's resources plus the size of `/data`: the kubelet counts it and would evict the pod."""
    resources = stdio.resources.to_container()
    if stdio.data_size is not None:
        disk = parse_quantity(resources["limits"]["ephemeral-storage"]) + parse_quantity(stdio.data_size)
        resources["limits"]["ephemeral-storage"] = str(int(disk))
    return resources


def _build_variable(variable: Variable) -> Object:
    reference = variable.secret_key_ref
    if reference is None:
        return {"name": variable.name, "value": variable.value}
    return {"name": variable.name, "valueFrom": {"secretKeyRef": reference.to_api()}}


def _build_volumes(stdio: Stdio) -> list[Object]:
    sizes = {"bridge": "16Mi", "tmp": "256Mi"} | ({"data": stdio.data_size} if stdio.data_size is not None else {})
    field = {"fieldPath": f"metadata.annotations['{ANNOTATION_TOKEN}']"}
    token = {"name": "token", "downwardAPI": {"items": [{"path": _DIGEST_FILE, "fieldRef": field}]}}
    return [*({"name": name, "emptyDir": {"sizeLimit": size}} for name, size in sizes.items()), token]


_MAX_MESSAGE: Final = 1024
_MAX_NAMED: Final = 8


def find_own_pods(deployment: Object, pods: list[Object]) -> list[Object]:
    """Return the living pods that run what the Deployment's template says, as it says; the oldest first.

    Labels and owners prove nothing: whoever may create pods may set them.
    """
    alive = (pod for pod in pods if not is_terminating(pod) and not is_over(pod))
    own = (pod for pod in alive if not find_changes(deployment["spec"]["template"], pod))
    return sorted(own, key=lambda pod: (str(pod["metadata"].get("creationTimestamp")), pod["metadata"]["name"]))


def build_workload(deployment: Object, pods: list[Object]) -> Workload:
    """Return the workload's status. `pods` are all pods with the labels of the server, in any state.

    The broker calls the pod itself. No Service is in between, whose selector or EndpointSlices others could change.
    """
    for pod in (own := find_own_pods(deployment, pods)):
        if get_condition(pod, "Ready").get("status") == "True" and (address := pod["status"].get("podIP")):
            host = f"[{address}]" if ":" in address else address
            return Workload(ready=True, address=f"{host}:{BRIDGE_PORT}", pod_uid=pod["metadata"]["uid"])
    strangers = [pod["metadata"]["name"] for pod in pods if not is_terminating(pod) and not is_over(pod)]
    if _is_ready(deployment) and strangers and not own:
        names = ", ".join(strangers[:_MAX_NAMED])
        message = f"pods have the labels of the server, but not its template: {names}; delete them"
        return build_failure(ServerReason.PODS_OF_OTHERS, message)
    reason, message = _find_problem(deployment, pods)
    return build_failure(reason, message)


def build_failure(reason: ServerReason, message: str) -> Workload:
    """Return the status of a workload that is not ready. A long message is cut."""
    return Workload(ready=False, reason=reason, message=shorten(message, _MAX_MESSAGE) or None)


def _is_ready(deployment: Object) -> bool:
    status = deployment.get("status") or {}
    observed = int(status.get("observedGeneration") or 0) >= int(deployment["metadata"].get("generation") or 0)
    return observed and bool(status.get("readyReplicas"))


def _find_problem(deployment: Object, pods: list[Object]) -> tuple[ServerReason, str]:
    """Return reason and message, by the newest pod that has a problem."""
    alive = [pod for pod in pods if not is_terminating(pod)]
    for pod in sorted(alive, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), reverse=True):
        if (problem := _find_pod_problem(pod)) is not None:
            return problem
    if not alive and (failure := get_condition(deployment, "ReplicaFailure")).get("status") == "True":
        message = str(failure.get("message") or "")
        if is_of_limit_range(message):
            return ServerReason.LIMIT_RANGE_EXCEEDED, message
        return (ServerReason.QUOTA_EXCEEDED if "quota" in message.lower() else ServerReason.POD_REFUSED), message
    return ServerReason.STARTING, "the pod is not ready yet"


def _find_pod_problem(pod: Object) -> tuple[ServerReason, str] | None:
    """Return why a pod will not become ready unless something is changed; None if it starts normally."""
    if (scheduled := get_condition(pod, "PodScheduled")).get("status") == "False":
        return ServerReason.UNSCHEDULABLE, str(scheduled.get("message") or "")
    status = pod.get("status") or {}
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason, message = str(waiting.get("reason") or ""), str(waiting.get("message") or "")
        if reason in IMAGE_PULL_REASONS:
            return ServerReason.IMAGE_PULL_FAILED, f"{reason}: {message}"
        if reason == "CrashLoopBackOff":
            return ServerReason.CRASH_LOOP, _describe_exit((container.get("lastState") or {}).get("terminated") or {})
        if reason not in NORMAL_WAITING_REASONS:
            return _find_secret_reason(message) or ServerReason.CONTAINER_NOT_STARTED, f"{reason}: {message}"
        terminated = (container.get("state") or {}).get("terminated") or {}
        if terminated.get("exitCode"):
            return ServerReason.CRASH_LOOP, _describe_exit(terminated)
    if is_over(pod):
        return ServerReason.POD_FAILED, str(status.get("message") or status.get("reason") or "the pod ended")
    return None


def _find_secret_reason(message: str) -> ServerReason | None:
    """Return the reason of a container without its Secret, by the kubelet's message; None for another message."""
    if re.search(r'secret "[^"]*" not found', message, re.IGNORECASE):
        return ServerReason.SECRET_NOT_FOUND
    return ServerReason.SECRET_KEY_NOT_FOUND if re.search(r"find key .{1,253} in Secret", message) else None


def _describe_exit(terminated: dict[str, Any]) -> str:
    output = str(terminated.get("message") or "").strip()
    text = f"the server exited: {terminated.get('reason') or 'Error'}, exit code {terminated.get('exitCode')}"
    return f"{text}: {output}" if output else text


class CannotRunServer(Exception):
    """The server can't be run as specified. `workload` is the status that says why."""

    def __init__(self, reason: ServerReason, message: str) -> None:
        super().__init__(message)
        self.workload = build_failure(reason, message)


def validate_stdio(body: Object, *, has_bridge: bool) -> Stdio | None:
    """Return the stdio server to run, or None if the ToolServer is not one. Raises CannotRunServer.

    `has_bridge` is whether the operator has an image with the bridge.
    """
    try:
        spec = ToolServerSpec.model_validate(body.get("spec") or {})
    except ValidationError as error:
        text = explain_errors(error, ToolServerSpec, place="spec")
        raise CannotRunServer(ServerReason.INVALID_SPEC, text) from error
    if spec.stdio is None:
        return None
    if not has_bridge:
        message = "the operator has no image with the bridge; set MCP_EXEC_SERVERS_IMAGE"
        raise CannotRunServer(ServerReason.NO_SERVERS_IMAGE, message)
    try:
        parse_quantity(spec.stdio.data_size or "0")
    except ValueError as error:
        raise CannotRunServer(ServerReason.INVALID_SPEC, f"spec.stdio.dataSize: {error}") from error
    if reserved := reserved_variables(spec.stdio):
        message = f"spec.stdio.env: {', '.join(reserved)}: the prefix MCP_EXEC_ is reserved for the bridge"
        raise CannotRunServer(ServerReason.INVALID_SPEC, message)
    return spec.stdio
