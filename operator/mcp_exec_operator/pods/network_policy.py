"""NetworkPolicies of a pool: the base denies every connection of its sandboxes, the other allows a few.

Policies are additive, so each of them alone isolates the sandboxes. The base outlives the last of them.
"""

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
from mcp_exec_operator.pods.manifest import PoolIdentity, base_policy_name, owned_by_pool, pool_labels

_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
FOREGROUND: Final = "foregroundDeletion"
"""Finalizer with which the garbage collector deletes an object's blocking dependents before the object."""


_PREFIXES: Final = (base_policy_name(""), "mcp-exec-pool-")


def policy_name(pool_name: str) -> str:
    """Return the name of a pool's NetworkPolicy that allows what its sandboxes need."""
    return f"{_PREFIXES[1]}{pool_name}"


def pool_of_policy(name: str) -> str:
    """Return the name of the pool whose policy has that name, or an empty text."""
    return next((name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix)), "")


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
    ingress = [{"from": peers, "ports": [{"protocol": "TCP", "port": SUPERVISOR_PORT}]}]
    return _build(pool, policy_name(pool.name), ingress=ingress, egress=egress if broker else [])


def build_base_policy(*, pool: PoolIdentity) -> Object:
    """Build the policy that allows nothing. The garbage collector deletes it after the last pod that it owns."""
    policy = _build(pool, base_policy_name(pool.name), ingress=[], egress=[])
    policy["metadata"]["finalizers"] = [FOREGROUND]
    return policy


def has_drifted(found: Object, wanted: Object) -> bool:
    """Return whether a NetworkPolicy in the cluster differs from the wanted one. An empty list equals no list."""
    meta = found["metadata"]
    owners = {owner.get("uid") for owner in meta.get("ownerReferences") or ()}
    unowned = not {owner["uid"] for owner in wanted["metadata"]["ownerReferences"]} <= owners
    unblocked = not set(wanted["metadata"].get("finalizers") or ()) <= set(meta.get("finalizers") or ())
    return unowned or unblocked or _normalize(found.get("spec") or {}) != _normalize(wanted["spec"])


def _build(pool: PoolIdentity, name: str, *, ingress: list[Object], egress: list[Object]) -> Object:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": name,
            "namespace": pool.namespace,
            "labels": {LABEL_MANAGED_BY: MANAGED_BY},
            "ownerReferences": [owned_by_pool(pool)],
        },
        "spec": {
            "podSelector": {"matchLabels": pool_labels(pool.name)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": egress,
        },
    }


def _normalize(spec: Object) -> Object:
    return {name: sorted(value) if name == "policyTypes" else value for name, value in spec.items() if value}
