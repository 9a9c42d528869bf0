"""Which warm pods should be replaced: their node is to be left, the template has changed, or they are too old."""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Final

from mcp_exec_api.meta import now as this_moment
from mcp_exec_operator.pods.cache import Pod, PodCache, PodState
from mcp_exec_operator.pods.nodes import NodeCache
from mcp_exec_operator.pods.status import tolerations_of

_SPREAD: Final = 0.2
"""The part of the highest age over which a pool's pods are spread, so that they don't all go at once."""
_LOOK_SECONDS: Final = 1.0
"""How often, at most, the warm pods are looked through: a pool may have thousands."""


class OutdatedReason(IntEnum):
    """Why a pod is replaced, the most urgent first."""

    NODE = 0
    """Its node is to be left."""
    TEMPLATE = 1
    """The pool's spec asks for another kind of pod."""
    AGE = 2
    """It has stood idle for too long."""


@dataclass(frozen=True, kw_only=True)
class OutdatedPod:
    """A warm pod that should be replaced."""

    pod: Pod
    why: OutdatedReason
    message: str


@dataclass(kw_only=True, eq=False)
class OutdatedPods:
    """Finds the outdated pods of one pool, and remembers them until the next look."""

    nodes: NodeCache
    look_at: float = 0.0
    """When the pods are to be looked through again; 0 means now."""
    _found: list[OutdatedPod] = field(default_factory=list)

    def outdated(self, inventory: PodCache, *, template: str, max_age: float | None, now: float) -> list[OutdatedPod]:
        """The outdated pods, the most urgent first. `now` is of the monotonic clock."""
        if now >= self.look_at:
            self.look_at = now + _LOOK_SECONDS
            warm, moment = inventory.all(PodState.WARM), this_moment()
            self._found = outdated_pods(
                warm, template=template, max_age=max_age, nodes=self.nodes, now=now, moment=moment
            )
        return [each for each in self._found if each.pod.state is PodState.WARM]


def outdated_pods(
    pods: Iterable[Pod], *, template: str, max_age: float | None, nodes: NodeCache, now: float, moment: datetime
) -> list[OutdatedPod]:
    """The warm pods that should be replaced, the most urgent first. `now` and `moment` are the same moment."""
    found = []
    for pod in pods:
        if why := nodes.why_leave(pod.node, tolerations_of(pod.newest)):
            found.append(OutdatedPod(pod=pod, why=OutdatedReason.NODE, message=why))
        elif pod.template != template:
            found.append(OutdatedPod(pod=pod, why=OutdatedReason.TEMPLATE, message="the pool's template has changed"))
        elif max_age is not None and pod.age(now, moment) > max_age * share_of_age(pod.name):
            found.append(OutdatedPod(pod=pod, why=OutdatedReason.AGE, message="maxIdleAgeSeconds are over"))
    return sorted(found, key=lambda each: each.why)


def share_of_age(name: str) -> float:
    """The part of the highest age at which the pod of that name goes: the same each time, another for each pod."""
    return 1.0 - _SPREAD * zlib.crc32(name.encode()) / 2**32
