"""Versions of workspaces in the store, with a cache of those that were read."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

from cachetools import LRUCache

from mcp_exec_api.wire.workspaces import KEEP_VERSIONS
from mcp_exec_broker.features.files.keys import OwnerSpace, number_key, split_key
from mcp_exec_broker.features.files.requests import FilesRefused
from mcp_exec_broker.features.files.storage import Storage
from mcp_exec_broker.features.files.workspace.manifest import Manifest, VersionSummary, decode_manifest, decode_summary
from mcp_exec_common.broker.files import FilesReason

log = logging.getLogger(__name__)

_MIB: Final = 1024 * 1024
_CACHE_BYTES: Final = 36 * _MIB
"""Memory of cached versions. One takes half of it at most."""
_INLINE_FILES: Final = 500
"""Files of a version that is encoded or decoded without a thread."""
_SMALL_BYTES: Final = 64 * 1024
"""Size of an object that is read without counting its memory."""
_SUMMARY_BYTES: Final = 64 * 1024
_GROWTH: Final = 6
"""Most memory of a version for each byte of its object, whose shortest lines have 100 bytes."""
_MAX_MEMORY: Final = 32 * _MIB
"""Most memory of a version with the default number of files and the longest paths."""

Hold = Callable[[int], Awaitable[None]]
"""Holds memory for a request. Raises FilesRefused (BUSY)."""


def estimate_memory(size: int) -> int:
    """Return the memory that a request holds for a version, from the size of its object."""
    return min(_GROWTH * size, _MAX_MEMORY) if size > _SMALL_BYTES else 0


@dataclass(kw_only=True, eq=False)
class Versions:
    """Reads and writes versions. Their objects never change."""

    storage: Storage
    _cache: LRUCache[tuple[str, int], Manifest] = field(
        default_factory=lambda: LRUCache(_CACHE_BYTES, getsizeof=lambda manifest: manifest.memory)
    )
    _alive: WeakValueDictionary[tuple[str, int], Manifest] = field(default_factory=WeakValueDictionary)
    """Versions in the cache, and others that requests have."""
    _locks: WeakValueDictionary[tuple[str, int], asyncio.Lock] = field(default_factory=WeakValueDictionary)
    """Locks of versions that are read, so that each is decoded once."""
    _coding: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One large version is encoded or decoded at a time: that takes three times the size of its object."""

    async def list_numbers(self, space: OwnerSpace, id: str) -> list[int]:
        """Return the versions that can be read, newest first."""
        return list(await self.list_sizes(space, id))

    async def list_sizes(self, space: OwnerSpace, id: str) -> dict[int, int]:
        """Return the versions that can be read, newest first, with the sizes of their objects."""
        sizes = {int(split_key(item.key)[1]): item.size async for item in self.storage.list_objects(space.versions(id))}
        newest = max(sizes, default=0)
        return {number: sizes[number] for number in sorted(sizes, reverse=True) if number > newest - KEEP_VERSIONS}

    async def list_outdated(self, space: OwnerSpace, id: str) -> list[str]:
        """Return the keys of the versions that are not kept."""
        keys = [item.key async for item in self.storage.list_objects(space.versions(id))]
        newest = max((int(split_key(key)[1]) for key in keys), default=0)
        return [key for key in keys if int(split_key(key)[1]) <= newest - KEEP_VERSIONS]

    async def find_head(self, space: OwnerSpace, id: str) -> int:
        """Return the newest version, or 0."""
        return next(iter(await self.list_numbers(space, id)), 0)

    async def read(
        self, space: OwnerSpace, id: str, version: int, *, size: int = 0, hold: Hold | None = None, keeps: bool = False
    ) -> Manifest:
        """Return a version whose object has `size` bytes. Raises FilesRefused (NO_VERSION, BUSY).

        `hold` is called before a version takes memory; for a sender who keeps it, also if it is in the cache.
        """
        if version == 0:
            return Manifest()
        key = (id, version)
        memory = estimate_memory(size)
        if keeps and hold is not None and memory:
            await hold(memory)
        elif (found := self._find(key)) is not None:
            return found
        async with self._locks.setdefault(key, asyncio.Lock()):
            found = self._find(key)
            if found is not None:
                return found
            if not keeps and hold is not None and memory:
                await hold(memory)
            return self._keep(id, await self._read(number_key(space.versions(id), version), version))

    def _find(self, key: tuple[str, int]) -> Manifest | None:
        return self._cache.get(key) or self._alive.get(key)

    async def _read(self, key: str, version: int) -> Manifest:
        data = await self.storage.read(key)
        if data is None:
            raise _no_version(version)
        try:
            if len(data) <= _SMALL_BYTES:
                return decode_manifest(data)
            async with self._coding:
                return await asyncio.to_thread(decode_manifest, data)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise _damaged(key, error) from error

    async def read_summary(self, space: OwnerSpace, id: str, version: int) -> VersionSummary:
        """Return what is known of a version without its files. Raises FilesRefused (NO_VERSION)."""
        found = self._find((id, version))
        if found is not None:
            return found.summary
        key = number_key(space.versions(id), version)
        data = await self.storage.read_head(key, _SUMMARY_BYTES)
        if data is not None and b"\n" not in data:
            data = await self.storage.read(key)
        if data is None:
            raise _no_version(version)
        try:
            return decode_summary(data.partition(b"\n")[0])
        except (ValueError, TypeError, KeyError) as error:
            raise _damaged(key, error) from error

    async def create(self, space: OwnerSpace, id: str, manifest: Manifest) -> bool:
        """Write a version; return False if another writer has written this number."""
        data = await self._encode(manifest)
        if not await self.storage.create(number_key(space.versions(id), manifest.version), data):
            return False
        self._keep(id, manifest)
        return True

    async def _encode(self, manifest: Manifest) -> bytes:
        if len(manifest.files) < _INLINE_FILES:
            return manifest.encode()
        async with self._coding:
            return await asyncio.to_thread(manifest.encode)

    def _keep(self, id: str, manifest: Manifest) -> Manifest:
        self._alive[id, manifest.version] = manifest
        if manifest.memory <= _CACHE_BYTES // 2:
            self._cache[id, manifest.version] = manifest
        return manifest


def _no_version(version: int) -> FilesRefused:
    return FilesRefused(
        FilesReason.NO_VERSION,
        f"the workspace has no version {version}, or no longer: the last {KEEP_VERSIONS} versions are kept",
    )


def _damaged(key: str, error: Exception) -> FilesRefused:
    log.error("a version in the store is damaged", extra={"key": key, "error": f"{type(error).__name__}: {error}"})
    return FilesRefused(FilesReason.UNAVAILABLE, "a version in the store is damaged; restore an earlier one")
