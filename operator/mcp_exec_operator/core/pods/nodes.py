"""Cache of the cluster's nodes: which are lost, and which ones pods should leave. No I/O.

Fed by a watch only. Nodes are large objects, and the effect of a missed event shows in the pods soon after. An unknown
node counts as healthy, so that an operator without rights on nodes relies on its pods.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.core.pods.status import PodProblem, loss_of

_LOST_TAINTS: Final = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
_CORDON: Final = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


@dataclass(frozen=True, kw_only=True)
class Node:
    """State of one node, as far as its pods are concerned."""

    name: str
    lost: str = ""
    """Why its pods cannot be relied on, or an empty string."""
    cordoned: bool = False
    """Whether it accepts no new pods, because it will be drained."""
    taints: tuple[Object, ...] = ()
    """Taints that evict pods."""


@dataclass(kw_only=True, eq=False)
class NodeCache:
    """All observed nodes."""

    _nodes: dict[str, Node] = field(default_factory=dict)

    def observe(self, item: Object, *, deleted: bool) -> str | None:
        """Update the cache from a node's object. Return the node's name if its pods are affected, else None."""
        name = item["metadata"]["name"]
        known = self._nodes.get(name, Node(name=name))
        found = self._nodes[name] = Node(name=name, lost=f"node {name} is gone") if deleted else read_node(item)
        return name if found != known else None

    def loss_reason(self, name: str | None) -> str:
        """Return why pods on the node cannot be relied on, or an empty string."""
        node = self._nodes.get(name or "")
        return node.lost if node is not None else ""

    def explain_loss(self, pod: Object | None, *, name: str, node: str | None) -> PodProblem:
        """Return why an execution's pod of that name does not answer. `pod` is None if it does not exist any more."""
        return loss_of(pod, name=name, node_loss=self.loss_reason(node), drained=self.is_cordoned(node))

    def is_trusted(self, name: str | None) -> bool:
        """Return whether pods on the node may be taken."""
        return not self.loss_reason(name)

    def is_cordoned(self, name: str | None) -> bool:
        """Return whether the node accepts no new pods."""
        node = self._nodes.get(name or "")
        return node is not None and node.cordoned

    def reason_to_leave(self, name: str | None, tolerations: Iterable[Object]) -> str:
        """Return why a pod with these tolerations should leave the node, or an empty string.

        A pod that tolerates the taint stays: its replacement could be scheduled to the same node.
        """
        node = self._nodes.get(name or "")
        if node is None or not (node.cordoned or node.taints):
            return ""
        accepted = list(tolerations)
        if node.cordoned and not tolerates(accepted, _CORDON):
            return f"node {node.name} is cordoned"
        taint = next((each for each in node.taints if not tolerates(accepted, each)), None)
        return f"node {node.name} has the taint {taint.get('key')}" if taint is not None else ""


def read_node(item: Object) -> Node:
    """Return the state of a node from its object."""
    name, spec, status = item["metadata"]["name"], item.get("spec") or {}, item.get("status") or {}
    taints = [taint for taint in spec.get("taints") or () if taint.get("effect") == "NoExecute"]
    ready: Object = next((each for each in status.get("conditions") or () if each.get("type") == "Ready"), {})
    lost = ""
    if ready.get("status") in ("False", "Unknown"):
        lost = f"node {name} is not ready: {ready.get('reason') or ready['status']}"
    elif taint := next((each for each in taints if each.get("key") in _LOST_TAINTS), None):
        lost = f"node {name} has the taint {taint['key']}"
    return Node(
        name=name,
        lost=lost,
        cordoned=bool(spec.get("unschedulable")),
        # without the time of the taint: it does not concern pods
        taints=tuple(
            {key: each.get(key) for key in ("key", "value", "effect")}
            for each in taints
            if each.get("key") not in _LOST_TAINTS
        ),
    )


def tolerates(tolerations: Iterable[Object], taint: Object) -> bool:
    """Return whether a toleration matches the taint, by the scheduler's rules, for any duration."""
    return any(
        each.get("effect") in (None, "", taint.get("effect"))
        and each.get("key") in (None, "", taint.get("key"))
        and (each.get("operator") == "Exists" or (each.get("value") or "") == (taint.get("value") or ""))
        for each in tolerations
    )
