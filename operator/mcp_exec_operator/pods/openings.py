"""NetworkPolicies of others that allow traffic of sandboxes. Policies are additive, so each of them opens a sandbox.

The policies are data of the namespace's users: what is kept of them is bounded, and what is too large to keep counts as
selecting every pod.
"""

import json
from dataclasses import dataclass, field
from typing import Any, Final

from mcp_exec_api.constants import LABEL_EXECUTION, LABEL_OWNER, LABEL_SESSION, LABEL_STATE, LABEL_TEMPLATE
from mcp_exec_common.kube.objects import Object

_MAX_POLICIES: Final = 256
"""Policies of a namespace that are kept."""
_MAX_SELECTOR_CHARACTERS: Final = 4096
_CHANGING: Final = frozenset({LABEL_EXECUTION, LABEL_OWNER, LABEL_SESSION, LABEL_STATE, LABEL_TEMPLATE})
"""Labels that differ between the pods of a pool, so that any requirement on them may be met."""


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What a NetworkPolicy of others allows, and for which pods."""

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
