"""Indexes of pods: by the time at which each has to be looked at, by owner, and by node. No I/O."""

import heapq
import math
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_operator.core.pods.pod import Pod

NOW: Final = -math.inf
"""The time of a pod that has changed: it is due at once, by any clock."""
NEVER: Final = math.inf
"""The time of a pod that only a change makes due."""
_SLACK: Final = 64
"""Entries that the heap may have in addition to two for each name."""


@dataclass(kw_only=True, eq=False)
class Schedule:
    """One time for each name, and the names in the order of their times. Every operation is O(log n), amortized."""

    _times: dict[str, float] = field(default_factory=dict)
    _heap: list[tuple[float, str]] = field(default_factory=list)
    """Has the entry of each time, and entries whose time was replaced since."""

    def set(self, name: str, at: float) -> None:
        """Set the time of a name, which replaces its former time. `NEVER` removes the name."""
        if at == self._times.get(name, NEVER):
            return
        if at == NEVER:
            del self._times[name]
        else:
            self._times[name] = at
            heapq.heappush(self._heap, (at, name))
        if len(self._heap) > 2 * len(self._times) + _SLACK:
            self._heap = [(at, name) for name, at in self._times.items()]
            heapq.heapify(self._heap)

    def pop_due(self, now: float) -> list[str]:
        """Remove and return the names whose time has come, the earliest first."""
        due = []
        while (at := self.next_at) is not None and at <= now:
            _, name = heapq.heappop(self._heap)
            del self._times[name]
            due.append(name)
        return due

    @property
    def size(self) -> int:
        """Number of entries in memory."""
        return len(self._heap)

    @property
    def next_at(self) -> float | None:
        """The earliest time, or None without names."""
        while self._heap and self._times.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None


@dataclass(kw_only=True, eq=False)
class OwnedPods:
    """Names of idle pods by the digest of their owner. Every operation takes constant time."""

    _by_owner: dict[str, OrderedDict[str, None]] = field(default_factory=dict)
    """Of an owner's pods, the least recently used first."""

    def add(self, name: str, owner: str) -> None:
        """Add a pod that was just used."""
        self._by_owner.setdefault(owner, OrderedDict())[name] = None

    def remove(self, name: str, owner: str) -> None:
        """Remove a pod."""
        names = self._by_owner.get(owner, OrderedDict())
        names.pop(name, None)
        if not names:
            self._by_owner.pop(owner, None)

    def newest(self, owner: str) -> str | None:
        """Return the most recently used pod of an owner, or None. The others grow old and are deleted."""
        names = self._by_owner.get(owner)
        return next(reversed(names)) if names else None

    def count(self, owner: str) -> int:
        """Return how many pods an owner has."""
        return len(self._by_owner.get(owner, ()))


@dataclass(kw_only=True, eq=False)
class PodsByNode:
    """Pods by the name of their node. Every operation takes constant time."""

    _by_node: dict[str, dict[str, Pod]] = field(default_factory=dict)

    def get(self, node: str) -> Iterable[Pod]:
        """Return the pods on a node."""
        return self._by_node.get(node, {}).values()

    def move(self, pod: Pod, former: str | None, node: str | None) -> None:
        """Move a pod from its former node to another. None is no node."""
        if node == former:
            return
        if former is not None:
            pods = self._by_node[former]
            del pods[pod.name]
            if not pods:
                del self._by_node[former]
        if node is not None:
            self._by_node.setdefault(node, {})[pod.name] = pod
