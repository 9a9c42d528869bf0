"""NetworkPolicy of a pool: connections to and from its sandboxes."""

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
    """Return the name of a pool's NetworkPolicy."""
    return f"mcp-exec-pool-{pool_name}"


def component_peer(component: str, *, release_namespace: str) -> Object:
    """Return the pods of one of the release's processes, as a peer of a NetworkPolicy."""
    return {
        "namespaceSelector": {"matchLabels": {_NAMESPACE_NAME: release_namespace}},
        "podSelector": {"matchLabels": {LABEL_NAME: "mcp-exec", LABEL_COMPONENT: component}},
    }


def build_policy(*, pool: PoolIdentity, release_namespace: str, broker: bool = False) -> Object:
    """Build the policy: ingress to the supervisor from operator and gateway only, egress to a broker only."""
    peers = [component_peer(component, release_namespace=release_namespace) for component in ("operator", "gateway")]
    egress = [
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
            "egress": egress if broker else [],
        },
    }


def has_drifted(found: Object, wanted: Object) -> bool:
    """Return whether a NetworkPolicy in the cluster differs from the wanted one. An empty list equals no list."""
    return _normalize(found.get("spec") or {}) != _normalize(wanted["spec"])


def _normalize(spec: Object) -> Object:
    return {name: sorted(value) if name == "policyTypes" else value for name, value in spec.items() if value}
