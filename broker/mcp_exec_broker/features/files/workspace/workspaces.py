"""Workspaces: versions are read, committed and restored here.

Safety against the collector: a new version uses contents of the newest version, of versions that are still kept, and
of recent uploads. These are younger than half of the time that the collector waits before it removes what is unused.
"""

import asyncio
from collections.abc import Awaitable, Callable, Container, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final
from weakref import WeakValueDictionary

from mcp_exec_api.wire.workspaces import CommitResult, Workspace, WorkspaceSettings, WorkspaceVersion
from mcp_exec_broker.features.files.keys import OwnerSpace
from mcp_exec_broker.features.files.metrics import FilesMetrics
from mcp_exec_broker.features.files.requests import FilesRefused, build_invalid
from mcp_exec_broker.features.files.storage import Storage
from mcp_exec_broker.features.files.usage import OwnerUsage, StoreLimits
from mcp_exec_broker.features.files.workspace.commit import (
    Change,
    CommitLimits,
    CommitSource,
    PendingUploads,
    build_manifest,
    build_result,
    check_limits,
    locate,
    merge,
)
from mcp_exec_broker.features.files.workspace.manifest import Files, Location, Manifest, compute_digest
from mcp_exec_broker.features.files.workspace.packs import PackReader, PackWriter, compact
from mcp_exec_broker.features.files.workspace.states import WorkspaceState, WorkspaceStates
from mcp_exec_broker.features.files.workspace.versions import Hold, Versions
from mcp_exec_common.broker.files import FilesReason, WorkspaceAccess, build_tag

_ATTEMPTS: Final = 10
_COMPACT_EVERY: Final = 8
"""Versions between two searches for packs with few used bytes."""
_MANY_PACKS: Final = 48
_REPEATED: Final = (FilesReason.MISSING, FilesReason.BUSY, FilesReason.UNAVAILABLE)
"""Why a sandbox repeats a commit, with what it has uploaded."""


Check = Callable[[Manifest, bool], None]
"""Raises FilesRefused if the newest version is not as a writer expects. It also gets whether the write changes it."""


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """The next version, before its contents are located."""

    files: Files
    base: Manifest
    contents: Mapping[str, Location]
    """Contents beyond those of the newest version."""
    merged: bool = False


@dataclass(kw_only=True, eq=False)
class WorkspaceStore:
    """The workspaces of all owners. All methods raise FilesRefused."""

    storage: Storage
    limits: StoreLimits
    states: WorkspaceStates
    versions: Versions
    usage: OwnerUsage
    pending: PendingUploads
    metrics: FilesMetrics
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    """Locks by the id of a workspace. Not needed for safety: they save work that another commit would undo."""

    # reading

    async def describe(self, space: OwnerSpace, state: WorkspaceState) -> Workspace:
        """Return what gateway and operator get about a workspace."""
        version = await self.versions.find_head(space, state.id)
        summary = await self.versions.read_summary(space, state.id, version) if version else None
        return Workspace(
            name=state.name,
            id=state.id,
            description=state.settings.description,
            version=version,
            etag=build_tag(state.id, version),
            files=summary.files if summary else 0,
            bytes=summary.bytes if summary else 0,
            max_bytes=state.get_max_bytes(self.limits),
            max_files=state.get_max_files(self.limits),
            ttl_seconds=int(state.get_ttl(self.limits).total_seconds()),
            created_at=state.created_at,
            used_at=max(state.used_at, summary.created_at) if summary else state.used_at,
            expires_at=state.used_at + state.get_ttl(self.limits),
        )

    async def read(
        self,
        space: OwnerSpace,
        state: WorkspaceState,
        version: int | None = None,
        *,
        hold: Hold | None = None,
        keeps: bool = False,
    ) -> Manifest:
        """Return a version that is kept; without a number, the newest. Version 0 has no files.

        `hold` and `keeps` are as in Versions.read.
        """
        if version == 0:
            return Manifest()
        for _ in range(_ATTEMPTS):
            kept = await self.versions.list_sizes(space, state.id)
            if version is not None and version not in kept:
                raise FilesRefused(FilesReason.NO_VERSION, f"the workspace has no version {version}, or no longer")
            try:
                number = version or next(iter(kept), 0)
                size = kept.get(number, 0)
                return await self.versions.read(space, state.id, number, size=size, hold=hold, keeps=keeps)
            except FilesRefused as error:
                if error.reason is not FilesReason.NO_VERSION or version is not None:
                    raise
        raise FilesRefused(FilesReason.BUSY, "others commit to the workspace all the time; repeat later")

    async def list_versions(self, space: OwnerSpace, state: WorkspaceState) -> list[WorkspaceVersion]:
        """Return the versions that are kept, newest first."""
        found = []
        for number in await self.versions.list_numbers(space, state.id):
            try:
                found.append((await self.versions.read_summary(space, state.id, number)).to_info())
            except FilesRefused as error:  # another commit removed it
                if error.reason is not FilesReason.NO_VERSION:
                    raise
        return found

    def open_reader(self, space: OwnerSpace, state: WorkspaceState) -> PackReader:
        """Return a reader of a workspace's contents."""
        return PackReader(storage=self.storage, folder=space.packs(state.id))

    async def open_writer(self, space: OwnerSpace, state: WorkspaceState, *, known: Container[str] = ()) -> PackWriter:
        """Return a writer of contents. Those in `known` are not stored again."""
        return PackWriter(
            storage=self.storage,
            folder=space.packs(state.id),
            reserve=await self.usage.open(space),
            is_stored=known.__contains__,
        )

    def get_limits(self, state: WorkspaceState, access: WorkspaceAccess | None = None) -> CommitLimits:
        """Return the limits of a workspace's versions, for an execution with its grant."""
        max_bytes, max_files = state.get_max_bytes(self.limits), state.get_max_files(self.limits)
        if access is not None:
            max_bytes = min(max_bytes, max_bytes if access.max_bytes is None else access.max_bytes)
            max_files = min(max_files, max_files if access.max_files is None else access.max_files)
        return CommitLimits(max_bytes=max_bytes, max_files=max_files, max_file_bytes=self.limits.file_bytes)

    # writing

    async def put(
        self, space: OwnerSpace, name: str, settings: WorkspaceSettings, *, caller_limit: int | None = None
    ) -> WorkspaceState:
        """Create a workspace, or replace its settings. `caller_limit` is that of WorkspaceStates.keep."""
        for field_name, value, limit in (
            ("maxBytes", settings.max_bytes, self.limits.workspace_bytes),
            ("maxFiles", settings.max_files, self.limits.workspace_files),
        ):
            if value is not None and value > limit:
                raise build_invalid(f"{field_name}: must be at most {limit}, which this installation allows")
        return await self.states.set(space, name, settings, caller_limit=caller_limit)

    async def commit(
        self,
        space: OwnerSpace,
        state: WorkspaceState,
        files: Files,
        *,
        base: int,
        execution: str,
        limits: CommitLimits,
        hold: Hold | None = None,
    ) -> CommitResult:
        """Commit the files of an execution, which began with version `base`.

        What others committed since is merged if it concerns other files. The same commit again has the same result.
        """
        source = CommitSource(execution=execution, digest=await asyncio.to_thread(compute_digest, files))
        uploaded = dict(self.pending.find(execution, state.id))

        async def plan(head: Manifest) -> _Plan | CommitResult:
            if head.version == base:
                return _Plan(files=files, base=head, contents=uploaded)
            repeated = await self._find_repeated(space, state, source, base=base)
            if repeated is not None:
                return repeated
            if base > head.version:
                raise build_invalid(f"base: the workspace has no version {base}")
            try:
                before = await self.read(space, state, base, hold=hold, keeps=True)
            except FilesRefused as error:
                if error.reason is not FilesReason.NO_VERSION:
                    raise
                raise FilesRefused(
                    FilesReason.CONFLICT, f"others committed since version {base}, which is not kept any more"
                ) from None
            merged = await asyncio.to_thread(merge, before.files, files, head.files)
            return _Plan(files=merged, base=before, contents={**before.contents, **uploaded}, merged=True)

        try:
            result = await self._append(space, state, plan, source, limits, first=base, hold=hold)
        except FilesRefused as error:
            if error.reason not in _REPEATED:
                self.pending.drop(execution, uploaded)
            raise
        self.pending.drop(execution, uploaded)
        return result

    async def edit(
        self,
        space: OwnerSpace,
        state: WorkspaceState,
        change: Change,
        *,
        contents: Mapping[str, Location] | None = None,
        check: Check | None = None,
        caller_limit: int | None = None,
        hold: Hold | None = None,
    ) -> CommitResult:
        """Commit a change of the newest version, with new contents in the store.

        `check` raises FilesRefused if that version is not as the writer expects. A draft is stored with its first
        version, so that a refused change leaves no workspace; `caller_limit` is that of WorkspaceStates.keep.
        """

        async def keep() -> None:
            await self.states.keep(space, state, caller_limit=caller_limit)

        async def plan(head: Manifest) -> _Plan:
            files = await asyncio.to_thread(change, head.files)
            if check is not None:
                check(head, files != head.files)
            return _Plan(files=files, base=head, contents=contents or {})

        try:
            limits = self.get_limits(state)
            return await self._append(space, state, plan, CommitSource(), limits, prepare=keep, hold=hold)
        except FilesRefused as error:
            if error.reason is not FilesReason.MISSING:
                raise
            # contents that were not written because the newest version had them
            raise FilesRefused(FilesReason.CONFLICT, "others changed the workspace meanwhile; repeat") from None

    async def restore(
        self,
        space: OwnerSpace,
        state: WorkspaceState,
        version: int,
        *,
        check: Check | None = None,
        hold: Hold | None = None,
    ) -> CommitResult:
        """Commit the files of an earlier version. `check` is that of `edit`. Raises FilesRefused (NO_VERSION)."""
        if version < 1:
            raise FilesRefused(FilesReason.NO_VERSION, "the versions of a workspace begin at 1")

        async def plan(head: Manifest) -> _Plan:
            earlier = await self.read(space, state, version, hold=hold, keeps=True)
            if check is not None:
                check(head, earlier.files != head.files)
            await self._check_packs(space, state, earlier)
            return _Plan(files=earlier.files, base=head, contents=earlier.contents)

        source = CommitSource(restored=version)
        return await self._append(space, state, plan, source, self.get_limits(state), hold=hold)

    async def _check_packs(self, space: OwnerSpace, state: WorkspaceState, manifest: Manifest) -> None:
        """Raise FilesRefused (NO_VERSION) if contents of a version were lost: the newest version must be readable."""
        stored = {item.key.rpartition("/")[2] async for item in self.storage.list_objects(space.packs(state.id))}
        if not manifest.summary.packs.keys() <= stored:
            raise FilesRefused(
                FilesReason.NO_VERSION,
                f"version {manifest.version} cannot be restored: the store has lost some of its contents",
            )

    async def _append(
        self,
        space: OwnerSpace,
        state: WorkspaceState,
        plan: Callable,  # type: ignore[type-arg]
        source: CommitSource,
        limits: CommitLimits,
        *,
        first: int | None = None,
        prepare: Callable[[], Awaitable[None]] | None = None,
        hold: Hold | None = None,
    ) -> CommitResult:
        """Write the version that `plan` returns for the newest one. `prepare` is called once it is valid."""
        lock = self._locks.setdefault(state.id, asyncio.Lock())
        with self.metrics.committing("execution" if source.execution else "request") as outcome:
            async with lock:
                for _ in range(_ATTEMPTS):
                    head = await self.read(space, state, hold=hold, keeps=True)
                    hold = None  # once for all attempts
                    planned = await plan(head)
                    if isinstance(planned, CommitResult):
                        outcome.result = "Repeated"
                        return planned
                    base = head.version if first is None else first
                    new = None
                    if planned.files != head.files:
                        new = await asyncio.to_thread(self._build, head, planned, source, limits)
                    if prepare is not None:
                        await prepare()
                    if new is None:
                        outcome.result = "Unchanged"
                        return build_result(state.id, head, head, base=base, merged=planned.merged)
                    new = await self._compact(space, state, new)
                    if await self.versions.create(space, state.id, new):
                        outcome.result = "Merged" if planned.merged else "Committed"
                        await self._clean_up(space, state)
                        return build_result(state.id, head, new, base=base, merged=planned.merged)
            raise FilesRefused(FilesReason.BUSY, "others commit to the workspace all the time; repeat later")

    def _build(self, head: Manifest, planned: _Plan, source: CommitSource, limits: CommitLimits) -> Manifest:
        check_limits(planned.files, head, limits)
        contents = locate(planned.files, head.contents, planned.contents)
        return build_manifest(head, planned.files, contents, source, moment=self.now())

    async def _find_repeated(
        self, space: OwnerSpace, state: WorkspaceState, source: CommitSource, *, base: int
    ) -> CommitResult | None:
        """Return the result of the same commit, if it was made before and its answer was lost."""
        for number in await self.versions.list_numbers(space, state.id):
            if number <= base:
                break
            summary = await self.versions.read_summary(space, state.id, number)
            if (summary.execution, summary.digest) == (source.execution, source.digest):
                return CommitResult(
                    version=number,
                    base=base,
                    changed_files=summary.changed_files,
                    files=summary.files,
                    bytes=summary.bytes,
                    etag=build_tag(state.id, number),
                    merged=number > base + 1,
                )
        return None

    async def _compact(self, space: OwnerSpace, state: WorkspaceState, manifest: Manifest) -> Manifest:
        """Return the version with contents moved out of packs that few of them use, now and then."""
        if manifest.version % _COMPACT_EVERY and len(manifest.summary.packs) < _MANY_PACKS:
            return manifest
        try:
            writer = await self.open_writer(space, state)
            return await compact(manifest, self.open_reader(space, state), writer)
        except FilesRefused:  # the owner has no room for copies; the store's error is logged
            return manifest

    async def _clean_up(self, space: OwnerSpace, state: WorkspaceState) -> None:
        """Remove versions that are not kept, and write down the use. The version is committed, whatever happens."""
        try:
            await self.storage.delete(await self.versions.list_outdated(space, state.id))
            await self.states.touch(space, state)
        except FilesRefused:
            return
