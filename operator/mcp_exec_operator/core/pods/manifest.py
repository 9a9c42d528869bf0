"""Manifests of sandbox pods: pure functions of a pool's spec. No I/O, no clock, no randomness."""

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any, Final

from mcp_exec_api.constants import (
    API_VERSION,
    DEFAULT_LANGUAGE,
    LABEL_EXECUTION,
    LABEL_MANAGED_BY,
    LABEL_NAME,
    LABEL_OWNER,
    LABEL_POOL,
    LABEL_SESSION,
    LABEL_STATE,
    LABEL_TEMPLATE,
    MANAGED_BY,
    SANDBOX_CONTAINER,
    SANDBOX_NAME,
    SUPERVISOR_PORT,
)
from mcp_exec_api.meta import parse_quantity
from mcp_exec_api.sandbox_pool import SandboxPoolSpec
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.core.pods.template import merge_template, refused_fields

FIRST_UID: Final = 100_000
LAST_UID: Final = 2**31 - 2

_SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
KEEP_ON_NODE: Final = {_SAFE_TO_EVICT: "false", "karpenter.sh/do-not-disrupt": "true"}
"""Annotations of a pod in use: cluster autoscaler and Karpenter leave its node. Warm pods may be moved."""
_LOST_NODE_SECONDS: Final = 10
"""Seconds until a pod leaves a node that is not ready. The Kubernetes default is 300."""


@dataclass(frozen=True, kw_only=True)
class PodIdentity:
    """Fields that differ between the pods of a pool."""

    name: str
    token_sha256: str
    """SHA-256 of the bearer token that the supervisor accepts."""
    uid: int | None
    """User and group ID. Each pod has its own, so that a process limit counts the processes of one pod. None leaves it
    to the cluster."""


@dataclass(frozen=True, kw_only=True)
class IsolationAddresses:
    """What a sandbox must not reach, and what it can reach if its network works, each as IP:PORT."""

    forbidden: tuple[str, ...] = ()
    """Addresses that answer other pods. Empty skips the check."""
    answering: str = ""
    """The broker, which the pool's policy allows. Empty if there is none."""

    def to_environment(self) -> list[Object]:
        """Return the variables of a sandbox."""
        if not self.forbidden:
            return []
        values = {
            "MCP_EXEC_FORBIDDEN_ADDRESSES": ",".join(self.forbidden),
            "MCP_EXEC_ANSWERING_ADDRESS": self.answering,
        }
        return [{"name": name, "value": value} for name, value in values.items() if value]


NO_ADDRESSES: Final = IsolationAddresses()


@dataclass(frozen=True, kw_only=True)
class PoolIdentity:
    """The pool that owns a pod."""

    namespace: str
    name: str
    uid: str
    policy_uid: str = ""
    """Uid of the pool's base NetworkPolicy, which Kubernetes keeps until the last of the pods is gone."""


@dataclass(frozen=True, kw_only=True)
class PodManifest:
    """A pod to create, and the paths of the pool's template that it does not have."""

    body: Object
    refused: tuple[str, ...]


def build_pod(
    *,
    spec: SandboxPoolSpec,
    pool: PoolIdentity,
    pod: PodIdentity,
    template_hash: str,
    isolation: IsolationAddresses = NO_ADDRESSES,
    template_prefixes: tuple[str, ...] = (),
) -> PodManifest:
    """Build the manifest of a warm pod. Security fields are set after the template is merged, which cannot change them.

    By the addresses of `isolation`, the sandbox verifies that it is isolated. `template_prefixes` are those
    that labels and annotations of the template may have.
    """
    template = spec.template.to_api()
    base = _base(spec, pool, pod, template_hash)
    base["spec"]["containers"][0]["env"] += isolation.to_environment()
    body = harden(merge_template(base, template, prefixes=template_prefixes), pod=pod)
    return PodManifest(body=body, refused=refused_fields(template, body))


def template_hash(spec: SandboxPoolSpec, *, template_prefixes: tuple[str, ...] = ()) -> str:
    """Return a digest of the pods of a spec. Pods with another digest are outdated."""
    pool = PoolIdentity(namespace="", name="", uid="")
    pod = PodIdentity(name="", token_sha256="", uid=0)
    body = build_pod(spec=spec, pool=pool, pod=pod, template_hash="", template_prefixes=template_prefixes).body
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:10]


def harden(body: Object, *, pod: PodIdentity) -> Object:
    """Return the pod with all fields set that confine it, whatever their values were."""
    seccomp = {"type": "RuntimeDefault"}
    user = {} if pod.uid is None else {"runAsUser": pod.uid, "runAsGroup": pod.uid}
    container = body["spec"]["containers"][0] | {
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "seccompProfile": seccomp,
            **user,
        }
    }
    return body | {
        "spec": body["spec"]
        | {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            # the resolver is the pod itself, which has none: every lookup fails at once
            "dnsPolicy": "None",
            "dnsConfig": {"nameservers": ["127.0.0.1"]},
            "hostNetwork": False,
            "hostPID": False,
            "hostIPC": False,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": seccomp, **user},
            "containers": [container],
        }
    }


def busy_patch(*, execution_name: str, pod_uid: str) -> Object:
    """Return the merge patch of a bound pod: labels, and no eviction. It fails for another pod of that name.

    The pod keeps its owners. Owned by its execution, it would outlive the pool and its NetworkPolicy.
    """
    return {
        "metadata": {
            "labels": {LABEL_STATE: "busy", LABEL_EXECUTION: label_value(execution_name)},
            "annotations": KEEP_ON_NODE,
            **({"uid": pod_uid} if pod_uid else {}),
        }
    }


def session_patch(*, session: str, owner: str, pod_uid: str) -> Object:
    """Return the merge patch of a pod that a session keeps: labels, and no eviction. `owner` is the owner's digest.

    It is written before the first code runs. A pod with these labels is never taken for a warm one.
    """
    return {
        "metadata": {
            "labels": {LABEL_STATE: "busy", LABEL_SESSION: label_value(session), LABEL_OWNER: owner},
            "annotations": KEEP_ON_NODE,
            "uid": pod_uid,
        }
    }


def label_value(name: str) -> str:
    """Return an object's name as the value of a label, which has at most 63 characters."""
    return name if len(name) <= 63 else f"{name[:52]}-{hashlib.sha256(name.encode()).hexdigest()[:10]}"


def pool_labels(pool_name: str) -> dict[str, str]:
    """Return the labels that all pods of a pool have, and no other pod."""
    return {LABEL_MANAGED_BY: MANAGED_BY, LABEL_NAME: SANDBOX_NAME, LABEL_POOL: pool_name}


def pool_of(pod: Object) -> str | None:
    """Return the name of the pool of a pod, or None if it does not have all labels of a pool's pods."""
    labels = pod["metadata"].get("labels") or {}
    name = labels.get(LABEL_POOL)
    return name if name and pool_labels(name).items() <= labels.items() else None


def base_policy_name(pool_name: str) -> str:
    """Return the name of a pool's base NetworkPolicy."""
    return f"mcp-exec-base-{pool_name}"


def owned_by_pool(pool: PoolIdentity) -> Object:
    """Return the owner reference of an object that belongs to a pool."""
    owner = {"apiVersion": API_VERSION, "kind": "SandboxPool", "name": pool.name, "uid": pool.uid}
    return owner | {"controller": True, "blockOwnerDeletion": False}


def owners_of_pod(pool: PoolIdentity) -> list[Object]:
    """Return the owner references of a pool's pods.

    The base NetworkPolicy is deleted in the foreground, so its blocking dependents, the pods, are deleted before it.
    """
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "name": base_policy_name(pool.name)}
    return [owned_by_pool(pool), policy | {"uid": pool.policy_uid, "blockOwnerDeletion": True}]


def has_owners(pod: Object, pool: PoolIdentity) -> bool:
    """Return whether a pod has both owners, so that the policy outlives it."""
    found = {
        (owner.get("uid"), owner.get("blockOwnerDeletion") is True)
        for owner in pod["metadata"].get("ownerReferences") or ()
    }
    return {(pool.uid, False), (pool.policy_uid, True)} <= found


def _base(spec: SandboxPoolSpec, pool: PoolIdentity, pod: PodIdentity, template_hash: str) -> Object:
    resources = spec.resources.to_container()
    own = spec.template.spec.get("containers")
    body: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod.name,
            "namespace": pool.namespace,
            "labels": {**pool_labels(pool.name), LABEL_STATE: "warm", LABEL_TEMPLATE: template_hash},
            "annotations": {_SAFE_TO_EVICT: "true"},
            "ownerReferences": owners_of_pod(pool),
        },
        "spec": {
            "containers": [
                {
                    "name": SANDBOX_CONTAINER,
                    "image": spec.image,
                    "imagePullPolicy": spec.image_pull_policy,
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "workingDir": "/workspace",
                    "ports": [{"name": "supervisor", "containerPort": SUPERVISOR_PORT, "protocol": "TCP"}],
                    "env": _environment(spec, pod, _limits(resources["limits"], own)),
                    "resources": resources,
                    "volumeMounts": [
                        {"name": "workspace", "mountPath": "/workspace"},
                        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
                    ],
                }
            ],
            "volumes": [{"name": name, "emptyDir": _volume(spec)} for name in ("workspace", "tmp")],
            "tolerations": _tolerations(spec),
            # a lost node takes few warm pods; the scheduler spreads pods that belong to no workload only by load
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": pool_labels(pool.name)},
                }
            ],
        },
    }
    optional: Object = {
        "imagePullSecrets": [secret.to_api() for secret in spec.image_pull_secrets],
        "runtimeClassName": spec.runtime_class_name,
        "nodeSelector": spec.node_selector,
        "affinity": spec.affinity,
        "priorityClassName": spec.priority_class_name,
    }
    body["spec"].update({name: value for name, value in optional.items() if value})
    return body


def _volume(spec: SandboxPoolSpec) -> Object:
    medium = {"medium": "Memory"} if spec.workspace_medium == "Memory" else {}
    return {"sizeLimit": spec.workspace_size, **medium}


def _limits(limits: Object, containers: Any) -> Object:
    """Return the limits of the container. The template's have precedence, as in the merge."""
    for container in containers if isinstance(containers, list) else ():
        if isinstance(container, dict) and container.get("name") == SANDBOX_CONTAINER:
            resources = container.get("resources")
            given = resources.get("limits") if isinstance(resources, dict) else None
            return {**limits, **(given if isinstance(given, dict) else {})}
    return limits


def _environment(spec: SandboxPoolSpec, pod: PodIdentity, limits: Object) -> list[Object]:
    processors = str(max(1, math.ceil(parse_quantity(str(limits["cpu"])))))
    values = {
        "MCP_EXEC_TOKEN_SHA256": pod.token_sha256,
        "MCP_EXEC_PORT": str(SUPERVISOR_PORT),
        "MCP_EXEC_MEMORY_BYTES": str(int(parse_quantity(str(limits["memory"])))),
        "MCP_EXEC_MAX_PROCESSES": str(spec.max_processes),
        "MCP_EXEC_STORAGE_BYTES": str(int(parse_quantity(spec.workspace_size))),
        # only if set, so that pods of other pools stay as they are
        **({"MCP_EXEC_LANGUAGE": spec.language} if spec.language != DEFAULT_LANGUAGE else {}),
        **({"MCP_EXEC_LOG_OUTPUT": "true"} if spec.log_output else {}),
        **({"MCP_EXEC_PREIMPORT": ",".join(spec.preimport)} if spec.preimport else {}),
        # The supervisor sets the variables of libraries to it, unless the image has values of its own.
        "PYTHON_CPU_COUNT": processors,
    }
    return [{"name": name, "value": value} for name, value in values.items()]


def _tolerations(spec: SandboxPoolSpec) -> list[Object]:
    given = [toleration.to_api() for toleration in spec.tolerations]
    keys = {toleration.get("key") for toleration in given}
    lost = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _LOST_NODE_SECONDS}
        for key in (f"node.kubernetes.io/{state}" for state in ("not-ready", "unreachable"))
        if key not in keys
    ]
    return [*given, *lost]
