"""The cluster's nodes, as far as pods on them are concerned: which are lost, and which are to be left. No I/O.

Told by a watch alone: nodes are large, and what a missed event would tell shows in the pods themselves soon after. A
node that no watch told of counts as a good one, so that an operator without rights on nodes goes by its pods.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_common.kube.objects import Object

_LOST_TAINTS: Final = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
_CORDON: Final = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


@dataclass(frozen=True, kw_only=True)
class Node:
    """What is known of one node."""

    name: str
    lost: str = ""
    """Why nothing on it can be relied on, or an empty text."""
    cordoned: bool = False
    """Whether it takes no new pods, since it is to be drained."""
    taints: tuple[Object, ...] = ()
    """The taints for which pods have to leave it."""


@dataclass(kw_only=True, eq=False)
class NodeCache:
    """All nodes that the watch told of."""

    _nodes: dict[str, Node] = field(default_factory=dict)

    def observe(self, item: Object, *, deleted: bool) -> str | None:
        """Takes in a node's object. Returns its name where something changed that concerns its pods."""
        name = item["metadata"]["name"]
        known = self._nodes.get(name, Node(name=name))
        found = self._nodes[name] = Node(name=name, lost=f"node {name} is gone") if deleted else read_node(item)
        return name if found != known else None

    def loss_reason(self, name: str | None) -> str:
        """Why nothing on the node can be relied on, or an empty text."""
        node = self._nodes.get(name or "")
        return node.lost if node is not None else ""

    def is_trusted(self, name: str | None) -> bool:
        """Whether pods on the node can be handed out."""
        return not self.loss_reason(name)

    def is_cordoned(self, name: str | None) -> bool:
        """Whether the node takes no new pods."""
        node = self._nodes.get(name or "")
        return node is not None and node.cordoned

    def reason_to_leave(self, name: str | None, tolerations: Iterable[Object]) -> str:
        """Why a pod with these tolerations should leave the node, or an empty text.

        A pod that tolerates it stays: its replacement could come to stand on the very same node.
        """
        node = self._nodes.get(name or "")
        if node is None or not (node.cordoned or node.taints):
            return ""
        held = list(tolerations)
        if node.cordoned and not tolerates(held, _CORDON):
            return f"node {node.name} is cordoned"
        taint = next((each for each in node.taints if not tolerates(held, each)), None)
        return f"node {node.name} has the taint {taint.get('key')}" if taint is not None else ""


def read_node(item: Object) -> Node:
    """What a node's object tells."""
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
        # the time at which a taint was added is no matter of its pods
        taints=tuple(
            {key: each.get(key) for key in ("key", "value", "effect")}
            for each in taints
            if each.get("key") not in _LOST_TAINTS
        ),
    )


def tolerates(tolerations: Iterable[Object], taint: Object) -> bool:
    """Whether one of the tolerations is for the taint, for however long, as the scheduler sees it."""
    return any(
        each.get("effect") in (None, "", taint.get("effect"))
        and each.get("key") in (None, "", taint.get("key"))
        and (each.get("operator") == "Exists" or (each.get("value") or "") == (taint.get("value") or ""))
        for each in tolerations
    )
