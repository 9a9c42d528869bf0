"""NetworkPolicies of a pool and of its namespace, and those of others that open its sandboxes.

Of a pool's two policies, the base denies every connection of its sandboxes and the other allows a few. That of the
namespace denies those of all sandboxes. Policies are additive, so each of them isolates the sandboxes, and each policy
of others opens them. The base outlives the last sandbox, and that of the namespace the last pool.

Policies of others are data of the namespace's users: what is kept of them is bounded, and what is too large to keep
counts as selecting every pod.
"""

import json
from dataclasses import dataclass, field
from typing import Any, Final, Self

from mcp_exec_api.constants import (
    BROKER_PORT,
    LABEL_COMPONENT,
    LABEL_EXECUTION,
    LABEL_INSTANCE,
    LABEL_MANAGED_BY,
    LABEL_NAME,
    LABEL_OWNER,
    LABEL_SESSION,
    LABEL_STATE,
    LABEL_TEMPLATE,
    MANAGED_BY,
    SANDBOX_NAME,
    SUPERVISOR_PORT,
)
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.core.pods.manifest import PoolIdentity, base_policy_name, owned_by_pool, pool_labels
from mcp_exec_operator.settings import Settings

_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
FOREGROUND: Final = "foregroundDeletion"
"""Finalizer that makes the garbage collector delete an object's blocking dependents before the object."""
NAMESPACE_POLICY: Final = "mcp-exec-base"
"""Name of the policy of a namespace."""
_PREFIXES: Final = (base_policy_name(""), "mcp-exec-pool-")
_MAX_POLICIES: Final = 256
"""Policies of a namespace that are kept."""
_MAX_SELECTOR_CHARACTERS: Final = 4096
_CHANGING: Final = frozenset({LABEL_EXECUTION, LABEL_OWNER, LABEL_SESSION, LABEL_STATE, LABEL_TEMPLATE})
"""Labels that differ between the pods of a pool, so that any requirement on them may be met."""


def policy_name(pool_name: str) -> str:
    """Return the name of a pool's NetworkPolicy that allows what its sandboxes need."""
    return f"{_PREFIXES[1]}{pool_name}"


def pool_of_policy(name: str) -> str:
    """Return the name of the pool whose policy has that name, or an empty text."""
    return next((name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix)), "")


@dataclass(frozen=True, kw_only=True)
class ReleasePods:
    """The pods of the release's processes. Another release may have pods of the same names in its namespace."""

    namespace: str
    instance: str = ""
    """Their label `app.kubernetes.io/instance`, Helm's name of the release. It is not compared if it is empty."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return those of the operator with these settings."""
        return cls(namespace=settings.release_namespace, instance=settings.release_name)

    def select(self, component: str) -> Object:
        """Return the pods of one process, as a peer of a NetworkPolicy."""
        labels = {LABEL_NAME: "mcp-exec", LABEL_COMPONENT: component}
        return {
            "namespaceSelector": {"matchLabels": {_NAMESPACE_NAME: self.namespace}},
            "podSelector": {"matchLabels": labels | ({LABEL_INSTANCE: self.instance} if self.instance else {})},
        }


def build_policy(*, pool: PoolIdentity, release: ReleasePods, broker: bool = False) -> Object:
    """Build the policy: ingress to the supervisor from operator and gateway only, egress to a broker only."""
    peers = [release.select(component) for component in ("operator", "gateway")]
    egress = [{"to": [release.select("broker")], "ports": [{"protocol": "TCP", "port": BROKER_PORT}]}]
    ingress = [{"from": peers, "ports": [{"protocol": "TCP", "port": SUPERVISOR_PORT}]}]
    return _build_for_pool(pool, policy_name(pool.name), ingress=ingress, egress=egress if broker else [])


def build_base_policy(*, pool: PoolIdentity) -> Object:
    """Build the policy that allows nothing. The garbage collector deletes it after the last pod that it owns."""
    policy = _build_for_pool(pool, base_policy_name(pool.name), ingress=[], egress=[])
    policy["metadata"]["finalizers"] = [FOREGROUND]
    return policy


def build_namespace_policy(namespace: str) -> Object:
    """Build the policy that allows nothing to any sandbox of a namespace. The release deletes it at its end."""
    return _build(namespace, NAMESPACE_POLICY, {LABEL_MANAGED_BY: MANAGED_BY, LABEL_NAME: SANDBOX_NAME})


def has_drifted(found: Object, wanted: Object) -> bool:
    """Return whether a NetworkPolicy in the cluster differs from the wanted one. An empty list equals no list.

    It may have finalizers and labels of others, for example of a network plugin. An owner of others could be its end.
    """
    meta, own = found["metadata"], wanted["metadata"]
    owners, own_owners = ({each["uid"] for each in one.get("ownerReferences") or ()} for one in (meta, own))
    unblocked = not set(own.get("finalizers") or ()) <= set(meta.get("finalizers") or ())
    unlabelled = not own["labels"].items() <= (meta.get("labels") or {}).items()
    changed = owners != own_owners or unblocked or unlabelled
    return changed or _normalize(found.get("spec") or {}) != _normalize(wanted["spec"])


def _build_for_pool(pool: PoolIdentity, name: str, *, ingress: list[Object], egress: list[Object]) -> Object:
    policy = _build(pool.namespace, name, pool_labels(pool.name))
    policy["metadata"]["ownerReferences"] = [owned_by_pool(pool)]
    policy["spec"] |= {"ingress": ingress, "egress": egress}
    return policy


def _build(namespace: str, name: str, selected: dict[str, str]) -> Object:
    """Build a policy that allows nothing to the selected pods. Nobody else may write what has its label."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {LABEL_MANAGED_BY: MANAGED_BY},
            "ownerReferences": [],
        },
        "spec": {"podSelector": {"matchLabels": selected}, "policyTypes": ["Ingress", "Egress"]},
    }


def _normalize(spec: Object) -> Object:
    return {name: sorted(value) if name == "policyTypes" else value for name, value in spec.items() if value}


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What a NetworkPolicy of others allows, with the pods that it selects."""

    name: str
    directions: tuple[str, ...]
    """`ingress`, `egress` or both."""
    selector: Object

    def __str__(self) -> str:
        return f"{self.name} ({' and '.join(self.directions)})"


@dataclass(kw_only=True, eq=False)
class NamespacePolicies:
    """The policies of a namespace that allow anything."""

    version: int = 0
    """Changes with each change."""
    _openings: dict[str, Opening] = field(default_factory=dict)

    def observe(self, policy: Object, *, deleted: bool) -> None:
        """Process a policy of a watch or a list."""
        name = str(policy["metadata"]["name"])
        opening = None if deleted else read_opening(policy)
        if opening == self._openings.get(name):
            return
        self._openings.pop(name, None)
        if opening is not None and len(self._openings) < _MAX_POLICIES:
            self._openings[name] = opening
        self.version += 1

    def find(self, labels: dict[str, str]) -> list[Opening]:
        """Return the policies that may select a pod with these labels."""
        found = (each for each in self._openings.values() if may_select(each.selector, labels))
        return sorted(found, key=lambda each: each.name)


def read_opening(policy: Object) -> Opening | None:
    """Return what a policy allows, or None if it allows nothing."""
    spec = policy.get("spec") or {}
    types = spec.get("policyTypes") or ["Ingress", *(["Egress"] if spec.get("egress") else [])]
    directions = tuple(each for each in ("ingress", "egress") if each.capitalize() in types and spec.get(each))
    if not directions:
        return None
    selector = spec.get("podSelector") or {}
    if len(json.dumps(selector)) > _MAX_SELECTOR_CHARACTERS:
        selector = {}
    return Opening(name=str(policy["metadata"]["name"]), directions=directions, selector=selector)


def may_select(selector: Object, labels: dict[str, str]) -> bool:
    """Return whether a selector may match a pool's pod with these labels, whatever its changing labels are."""
    wanted = selector.get("matchLabels") or {}
    if any(name not in _CHANGING and labels.get(name) != value for name, value in wanted.items()):
        return False
    return all(_may_match(each, labels) for each in selector.get("matchExpressions") or ())


def _may_match(expression: dict[str, Any], labels: dict[str, str]) -> bool:
    key, operator, values = expression.get("key"), expression.get("operator"), expression.get("values") or ()
    if key in _CHANGING:
        return True
    value = labels.get(str(key))
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    return (value is not None) == (operator == "Exists")
