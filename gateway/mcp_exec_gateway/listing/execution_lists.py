"""Lists of all executions in the order of their creation, kept current by the executions' reflectors.

The API server lists by name and cannot list the newest first. The lists are a copy, so a page may be older than the
API server's state by the delay of a watch, usually milliseconds.
"""

import asyncio
from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_gateway.listing.entry import EntryPosition, ExecutionEntry

_ALL_BYTES: Final = 64 * 1024 * 1024
"""Memory of the lists of all namespaces: about 40,000 executions. The memory limit of a gateway is 512 MiB."""
_MIN_BYTES: Final = 1024 * 1024
"""Memory of one namespace's list, however many namespaces there are."""
_SLICE: Final = 1_000
"""Entries that are searched before other requests get a turn."""


@dataclass(kw_only=True)
class _NamespaceList:
    entries: dict[str, ExecutionEntry] = field(default_factory=dict)
    order: list[EntryPosition] = field(default_factory=list)
    """Places of all entries, oldest first."""
    weight: int = 0

    def put(self, entry: ExecutionEntry) -> None:
        old = self.entries.get(entry.name)
        if old is None or old.position != entry.position:
            self.remove(entry.name)
            insort(self.order, entry.position)
        else:
            self.weight -= old.weight
        self.entries[entry.name] = entry
        self.weight += entry.weight

    def remove(self, name: str) -> None:
        if (entry := self.entries.pop(name, None)) is not None:
            del self.order[bisect_left(self.order, entry.position)]
            self.weight -= entry.weight


@dataclass(kw_only=True)
class ExecutionLists:
    """Executions by namespace, newest first, in bounded memory: the oldest of a namespace are dropped first.

    An execution that was dropped can still be read by its name.
    """

    namespaces: int = 1
    """Number of namespaces, each of which has an equal part of the memory."""
    _lists: dict[str, _NamespaceList] = field(default_factory=dict, init=False)

    @property
    def limit(self) -> int:
        """Bytes of memory of one namespace's list."""
        return max(_ALL_BYTES // max(self.namespaces, 1), _MIN_BYTES)

    def put(self, namespace: str, entry: ExecutionEntry) -> None:
        """Add an execution, or replace what is known of it."""
        listed = self._lists.setdefault(namespace, _NamespaceList())
        listed.put(entry)
        while listed.weight > self.limit:
            listed.remove(listed.order[0][1])

    def remove(self, namespace: str, name: str) -> None:
        """Remove an execution."""
        if (listed := self._lists.get(namespace)) is not None:
            listed.remove(name)

    async def find_page(
        self,
        namespace: str,
        matches: Callable[[ExecutionEntry], bool],
        *,
        limit: int,
        before: EntryPosition | None = None,
    ) -> tuple[list[ExecutionEntry], EntryPosition | None]:
        """Return the newest executions that match, of those older than `before`, and the last one's place if more do.

        The search takes turns with other requests. Executions that come meanwhile belong to an earlier page.
        """
        listed = self._lists.get(namespace)
        found: list[ExecutionEntry] = []
        if listed is None:
            return found, None
        end = len(listed.order) if before is None else bisect_left(listed.order, before)
        while end > 0:
            part = listed.order[max(0, end - _SLICE) : end]
            for _, name in reversed(part):
                if matches(entry := listed.entries[name]):
                    if len(found) == limit:
                        return found, found[-1].position
                    found.append(entry)
            await asyncio.sleep(0)
            end = bisect_left(listed.order, part[0])
        return found, None
