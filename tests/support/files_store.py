"""A store of files in memory that can fail at any write, with a clock of its own."""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from obstore.store import MemoryStore
from prometheus_client import CollectorRegistry

from mcp_exec_api.wire.workspaces import CommitResult
from mcp_exec_broker.features.files.keys import OwnerSpace
from mcp_exec_broker.features.files.storage import ObjectWriter, ObstoreStorage
from mcp_exec_broker.features.files.store import FilesStore
from mcp_exec_broker.features.files.usage import StoreLimits
from mcp_exec_broker.features.files.workspace.manifest import Manifest, VersionFile, index_files
from mcp_exec_broker.features.files.workspace.states import WorkspaceState

SPACE = OwnerSpace("agents", "0a" * 16)
OTHER = OwnerSpace("agents", "0b" * 16)


class Crash(Exception):
    """The process ends here."""


class CrashingStorage(ObstoreStorage):
    """Objects in memory. The process can be made to end at a write, before or after it took effect."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.writes_left: int | None = None
        """Writes until the process ends; None if it does not."""
        self.loses_last = True
        """Whether the last write has no effect."""
        self.between: Callable[[], Awaitable[object]] | None = None
        """Called before the last write, which then takes place: what another replica does meanwhile."""

    async def create(self, key: str, data: bytes) -> bool:
        await self.crash_before()
        created = await super().create(key, data)
        self.crash_after()
        return created

    async def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            await self.crash_before()
            await super().delete([key])
            self.crash_after()

    def open_writer(self, key: str) -> ObjectWriter:
        return _CrashingWriter(self, super().open_writer(key))

    async def crash_before(self) -> None:
        """Count a write, and end the process if it was the last one."""
        if self.writes_left is not None:
            self.writes_left -= 1
            if self.writes_left == 0 and self.between is not None:
                between, self.writes_left, self.between = self.between, None, None
                await between()
            elif self.writes_left == 0 and self.loses_last:
                raise Crash

    def crash_after(self) -> None:
        """End the process if the last write is done."""
        if self.writes_left == 0:
            raise Crash


class _CrashingWriter:
    def __init__(self, storage: CrashingStorage, writer: ObjectWriter) -> None:
        self._storage, self._writer = storage, writer

    async def write(self, data: bytes) -> None:
        await self._writer.write(data)

    async def commit(self) -> None:
        await self._storage.crash_before()
        await self._writer.commit()
        self._storage.crash_after()

    async def abort(self) -> None:
        await self._writer.abort()


class FilesWorld:
    """A store, its clock, and processes that use it one after the other."""

    def __init__(self, **limits: Any) -> None:
        self.storage = CrashingStorage()
        self.limits = StoreLimits(**limits)
        self.seconds = 0.0
        self.restart()

    def restart(self) -> None:
        """Start another process on the same objects."""
        self.storage.writes_left = None
        self.store = self.build()

    def build(self) -> FilesStore:
        """Return another replica, whose metrics are `registry` from now on."""
        self.registry = CollectorRegistry()
        return FilesStore.build(
            self.storage,
            self.limits,
            registry=self.registry,
            clock=lambda: self.seconds,
            now=lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds),
        )

    async def upload(self, state: WorkspaceState, execution: str, contents: Iterable[bytes]) -> None:
        """Upload contents as an execution does."""
        writer = await self.store.workspaces.open_writer(SPACE, state)
        started = self.store.pending.clock()
        async with writer:
            for content in contents:
                await writer.add_bytes(content)
        self.store.pending.add(execution, state.id, writer.stored, namespace=SPACE.namespace, started=started)

    async def commit(
        self,
        state: WorkspaceState,
        files: Mapping[str, bytes],
        *,
        base: int,
        execution: str = "uid-1",
        uploads: bool = True,
    ) -> CommitResult:
        """Upload and commit as an execution does."""
        if uploads:
            await self.upload(state, execution, files.values())
        return await self.store.workspaces.commit(
            SPACE,
            state,
            index_files(map(entry_of, files.keys(), files.values())),
            base=base,
            execution=execution,
            limits=self.store.workspaces.get_limits(state),
        )

    async def put(self, state: WorkspaceState, path: str, content: bytes) -> CommitResult:
        """Write a file as the gateway does."""
        writer = await self.store.workspaces.open_writer(SPACE, state)
        async with writer:
            await writer.add_bytes(content)
        new = entry_of(path, content)
        return await self.store.workspaces.edit(
            SPACE, state, lambda files: index_files({**files, path: new}.values()), contents=writer.stored
        )

    async def read(self, state: WorkspaceState, version: int | None = None) -> dict[str, bytes]:
        """Return all files of a version with their contents."""
        manifest = await self.store.workspaces.read(SPACE, state, version)
        return await self.read_contents(state, manifest)

    async def read_contents(self, state: WorkspaceState, manifest: Manifest) -> dict[str, bytes]:
        """Return the contents of a version's files."""
        found = {hashlib.sha256().hexdigest(): b""}
        async for sha256, location, stream in self.store.workspaces.open_reader(SPACE, state).read(manifest.contents):
            found[sha256] = await stream.read(location.size)
            assert hashlib.sha256(found[sha256]).hexdigest() == sha256
        return {path: found[entry.sha256] for path, entry in manifest.files.items()}

    async def list_keys(self, folder: str = "") -> list[str]:
        """Return the keys of all objects in a folder."""
        return sorted([item.key async for item in self.storage.list_objects(folder)])


def entry_of(path: str, content: bytes, mode: int = 0o644) -> VersionFile:
    return VersionFile(path, len(content), hashlib.sha256(content).hexdigest(), mode)


async def parts_of(content: bytes, size: int = 1000) -> AsyncIterator[bytes]:
    """Return a content as a stream of parts."""
    for start in range(0, len(content), size):
        yield content[start : start + size]
