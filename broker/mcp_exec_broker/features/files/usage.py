"""Limits on what owners may store, what they and their namespaces have stored, and room of the volume."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from cachetools import LRUCache

from mcp_exec_broker.features.files.keys import ARTIFACTS, DATA, OwnerSpace
from mcp_exec_broker.features.files.requests import FilesRefused, build_too_large
from mcp_exec_broker.features.files.storage import Storage
from mcp_exec_common.broker.files import FilesReason

log = logging.getLogger(__name__)

MIB: Final = 1024 * 1024
GIB: Final = 1024 * MIB
MAX_COMMIT_BYTES: Final = 16 * MIB
"""Longest body of a commit."""
MAX_PATHS_BYTES: Final = 4 * MIB
"""Most bytes of all paths of a version, in UTF-8. In memory, a path may take four times as many."""
_FRESH_SECONDS: Final = 600
"""Seconds until the objects of an owner are listed again: other replicas write, too."""
_FRESH_SECONDS_OF_NAMESPACE: Final = 2 * _FRESH_SECONDS
"""The same for a namespace. Mostly the collector has listed them all meanwhile."""
_MAX_OWNERS: Final = 10_000


@dataclass(frozen=True, kw_only=True)
class StoreLimits:
    """Quotas and lifetimes."""

    workspace_bytes: int = GIB
    """Most bytes of the files of a version. A workspace may have a lower limit."""
    workspace_files: int = 20_000
    """Most files of a version. A workspace may have a lower limit."""
    file_bytes: int = 256 * MIB
    """Most bytes of a file."""
    owner_workspaces: int = 100
    """Most workspaces of an owner."""
    owner_bytes: int = 10 * GIB
    """Most bytes of an owner's objects: all versions, artifacts, and contents that no version has yet or any more."""
    namespace_bytes: int = 50 * GIB
    """Most bytes of the objects of all owners in a namespace: callers choose the users that they store for."""
    workspace_ttl_seconds: int = 30 * 24 * 3600
    """Seconds from its last use until a workspace is deleted, unless it has a value of its own."""
    artifact_ttl_seconds: int = 7 * 24 * 3600
    """Seconds until an artifact is deleted."""
    artifact_bytes: int = 64 * MIB
    """Most bytes of an artifact."""


@dataclass
class _Count:
    listed: float
    """When the owner's objects were listed. What is written does not make the listing newer."""
    bytes: int


@dataclass(kw_only=True, eq=False)
class OwnerUsage:
    """Counts of stored bytes, from listings and what this replica has written since."""

    storage: Storage
    limits: StoreLimits
    clock: Callable[[], float] = monotonic
    _counts: LRUCache[OwnerSpace, _Count] = field(default_factory=lambda: LRUCache(_MAX_OWNERS))
    _namespaces: dict[str, _Count] = field(default_factory=dict)
    _listing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a namespace is listed."""
    _spare: int | None = None
    """Bytes that may still be written to the volume, from its last measure."""

    async def measure(self, space: OwnerSpace) -> int:
        """Return the bytes of an owner's objects."""
        return (await self._count(space)).bytes

    async def _count(self, space: OwnerSpace) -> _Count:
        count = self._counts.get(space)
        if count is None or self.clock() - count.listed >= _FRESH_SECONDS:
            count = _Count(self.clock(), 0)
            for folder in (space.data(), space.artifacts()):
                async for item in self.storage.list_objects(folder):
                    count.bytes += item.size
            self._counts[space] = count
        return count

    async def _measure_namespace(self, namespace: str) -> None:
        async with self._listing:
            count = self._namespaces.get(namespace)
            if count is not None and self.clock() - count.listed < _FRESH_SECONDS_OF_NAMESPACE:
                return
            count = _Count(self.clock(), 0)
            for folder in (DATA, ARTIFACTS):
                async for item in self.storage.list_objects(f"{folder}/{namespace}"):
                    count.bytes += item.size
            self._namespaces[namespace] = count

    async def open(self, space: OwnerSpace) -> Callable[[int], None]:
        """Return a function that counts bytes before they are written, or dropped if they are negative.

        It raises FilesRefused: TOO_LARGE if the owner or its namespace would have too many, UNAVAILABLE if the volume
        is almost full.
        """
        first = await self._count(space)
        await self._measure_namespace(space.namespace)
        self._spare = await self.storage.measure_spare()

        def reserve(size: int) -> None:
            count = self._counts.get(space, first)
            if size > 0 and count.bytes + size > self.limits.owner_bytes:
                raise build_too_large(
                    f"the owner has {count.bytes} bytes stored, older versions and artifacts included, and allowed are "
                    f"{self.limits.owner_bytes}: delete workspaces, or wait until older contents are removed"
                )
            self._reserve_shared(space.namespace, size)
            count.bytes = max(count.bytes + size, 0)

        reserve(0)
        return reserve

    def _reserve_shared(self, namespace: str, size: int) -> None:
        """Count bytes of a namespace and of the volume, which many owners share. Raises FilesRefused."""
        count = self._namespaces[namespace]
        if size > 0 and count.bytes + size > self.limits.namespace_bytes:
            raise build_too_large(
                f"the owners of namespace {namespace} have {count.bytes} bytes stored, and allowed are "
                f"{self.limits.namespace_bytes} in all: delete workspaces, or wait until older contents are removed"
            )
        if self._spare is not None:
            if size > max(self._spare, 0):
                log.error("the volume for files is almost full")
                raise FilesRefused(FilesReason.UNAVAILABLE, "the volume for files is almost full; nothing was stored")
            self._spare -= size
        count.bytes = max(count.bytes + size, 0)

    def set_namespace(self, namespace: str, size: int) -> None:
        """Set what a listing of all of a namespace's owners found."""
        self._namespaces[namespace] = _Count(self.clock(), size)

    def set(self, space: OwnerSpace, size: int) -> None:
        """Set what a listing found."""
        self._counts[space] = _Count(self.clock(), size)

    def forget(self, space: OwnerSpace) -> None:
        """List the owner's objects at the next request."""
        self._counts.pop(space, None)
