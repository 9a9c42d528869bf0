"""The NetworkPolicy of a pool: who may speak to its sandboxes, and to whom they may."""

from typing import Final

from mcp_exec_api.constants import (
    BROKER_PORT,
    LABEL_COMPONENT,
    LABEL_MANAGED_BY,
    LABEL_NAME,
    MANAGED_BY,
    SUPERVISOR_PORT,
)
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.pods.manifest import PoolIdentity, owned_by_pool, pool_labels

_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"


def policy_name(pool_name: str) -> str:
    """The name of a pool's NetworkPolicy."""
    return f"mcp-exec-pool-{pool_name}"


def component_peer(component: str, *, release_namespace: str) -> Object:
    """The pods of one of the release's own processes, as a NetworkPolicy's peer."""
    return {
        "namespaceSelector": {"matchLabels": {_NAMESPACE_NAME: release_namespace}},
        "podSelector": {"matchLabels": {LABEL_NAME: "mcp-exec", LABEL_COMPONENT: component}},
    }


def build_policy(*, pool: PoolIdentity, release_namespace: str, broker: bool = False) -> Object:
    """Ingress to the supervisor's port from operator and gateway alone; egress to the broker's, where there is one."""
    peers = [component_peer(component, release_namespace=release_namespace) for component in ("operator", "gateway")]
    ways_out = [
        {
            "to": [component_peer("broker", release_namespace=release_namespace)],
            "ports": [{"protocol": "TCP", "port": BROKER_PORT}],
        }
    ]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": policy_name(pool.name),
            "namespace": pool.namespace,
            "labels": {LABEL_MANAGED_BY: MANAGED_BY},
            "ownerReferences": [owned_by_pool(pool)],
        },
        "spec": {
            "podSelector": {"matchLabels": pool_labels(pool.name)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": peers, "ports": [{"protocol": "TCP", "port": SUPERVISOR_PORT}]}],
            "egress": ways_out if broker else [],
        },
    }


def has_drifted(found: Object, wanted: Object) -> bool:
    """Whether a NetworkPolicy in the cluster says anything else than it should. An empty list may be left out."""
    return _said(found.get("spec") or {}) != _said(wanted["spec"])


def _said(spec: Object) -> Object:
    return {name: sorted(value) if name == "policyTypes" else value for name, value in spec.items() if value}
