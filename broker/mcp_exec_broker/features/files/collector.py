"""Removes what nothing uses any more: expired and deleted workspaces, old versions, contents and artifacts.

An object that no version uses is removed if it was unused at two looks, at least `GRACE` apart. A commit that is in
progress at a look is over at the other one, and no commit uses what was uploaded longer ago than half of `GRACE`. So
what a version uses is never removed, whatever commits meanwhile, at this replica or another.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic, time
from typing import Final

from mcp_exec_api.constants import MAX_APPROVAL_SECONDS
from mcp_exec_broker.features.files.artifacts import ArtifactStore
from mcp_exec_broker.features.files.keys import ARTIFACTS, DATA, WORKSPACES, OwnerSpace
from mcp_exec_broker.features.files.metrics import FilesMetrics, StoredTotals
from mcp_exec_broker.features.files.requests import FilesRefused
from mcp_exec_broker.features.files.storage import Storage, StoredObject
from mcp_exec_broker.features.files.usage import OwnerUsage, StoreLimits
from mcp_exec_broker.features.files.workspace.commit import PENDING_SECONDS
from mcp_exec_broker.features.files.workspace.states import TOUCH_AFTER, WorkspaceState, WorkspaceStates
from mcp_exec_broker.features.files.workspace.versions import Versions
from mcp_exec_common.broker.files import FilesReason
from mcp_exec_common.broker.grants import MAX_FILES_GRANT_SECONDS

log = logging.getLogger(__name__)

GRACE_SECONDS: Final = 2 * PENDING_SECONDS
"""Seconds between two looks that find an object unused. Longer than any request, and any upload until its commit."""

_LONGEST_RUN: Final = timedelta(seconds=MAX_FILES_GRANT_SECONDS + MAX_APPROVAL_SECONDS)
"""Longest time between the read of a workspace and its commit. No workspace expires in between."""


@dataclass(kw_only=True, eq=False)
class Collector:
    """Collects garbage of all owners."""

    storage: Storage
    limits: StoreLimits
    states: WorkspaceStates
    versions: Versions
    artifacts: ArtifactStore
    usage: OwnerUsage
    metrics: FilesMetrics
    clock: Callable[[], float] = monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _unused_since: dict[str, float] = field(default_factory=dict)
    """When objects were found unused for the first time, by key."""

    async def run(self) -> int:
        """Look at everything once; return the number of objects that were removed. Raises FilesRefused."""
        with self.metrics.collecting():
            return await self._run()

    async def _run(self) -> int:
        await self.storage.clean_up(time() - GRACE_SECONDS)
        removed, unused = 0, set[str]()
        totals: dict[str, StoredTotals] | None = {}
        for space in await self._list_spaces():
            try:
                count, stored = await self._collect(space, unused)
                removed += count
                if totals is not None:
                    totals.setdefault(space.namespace, StoredTotals()).merge(stored)
            except FilesRefused as error:  # the next owner's objects may be readable
                if error.reason is not FilesReason.UNAVAILABLE:
                    raise
                totals = None
                unused |= self._unused_since.keys() & {key for key in self._unused_since if space.owner in key}
        self._unused_since = {key: since for key, since in self._unused_since.items() if key in unused}
        self.metrics.collected_objects.inc(removed)
        if totals is not None:
            self.metrics.set_stored(totals)
            for namespace, stored in totals.items():
                self.usage.set_namespace(namespace, stored.bytes)
        return removed

    async def _list_spaces(self) -> list[OwnerSpace]:
        spaces = set()
        for folder in (WORKSPACES, DATA, ARTIFACTS):
            for namespace in await self.storage.list_folders(folder):
                for owner in await self.storage.list_folders(f"{folder}/{namespace}"):
                    spaces.add(OwnerSpace(namespace, owner))
        return sorted(spaces)

    async def _collect(self, space: OwnerSpace, unused: set[str]) -> tuple[int, StoredTotals]:
        """Return the number of objects that were removed, and what is left."""
        stored = StoredTotals()
        removed = await self._remove_expired_artifacts(space)
        async for item in self.storage.list_objects(space.artifacts()):
            stored.add(item.size)
        alive = await self._list_alive(space, unused)
        for id in await self.storage.list_folders(space.data()):
            used = await self._list_used(space, id) if id in alive else set()
            doomed = []
            async for item in self.storage.list_objects(space.data(id)):
                if item.key not in used and self._is_due(item.key, unused):
                    doomed.append(item)
                else:
                    stored.add(item.size)
            removed += await self._remove(doomed)
        self.usage.set(space, stored.bytes)
        return removed, stored

    async def _remove(self, doomed: Sequence[StoredObject]) -> int:
        """Delete objects; return their number."""
        await self.storage.delete([item.key for item in doomed])
        self.metrics.collected_bytes.inc(sum(item.size for item in doomed))
        return len(doomed)

    async def _list_alive(self, space: OwnerSpace, unused: set[str]) -> set[str]:
        """Return the ids of an owner's workspaces, without those that have expired."""
        alive = set()
        for state in await self.states.list_all(space):
            if not state.is_deleted and self._is_expired(state):
                log.info("workspace expired", extra={"namespace": space.namespace, "workspace": state.name})
                await self.states.delete(space, state.name, unless=lambda current: not self._is_expired(current))
            if not state.is_deleted:
                alive.add(state.id)
            elif self._is_due(f"{space.states(state.name)}/{state.number}", unused):
                await self.states.remove(space, state)
        return alive

    def _is_expired(self, state: WorkspaceState) -> bool:
        return self.now() - state.used_at > state.get_ttl(self.limits) + TOUCH_AFTER + _LONGEST_RUN

    async def _list_used(self, space: OwnerSpace, id: str) -> set[str]:
        """Return the keys of a workspace's versions that are kept, and of the packs that they use."""
        await self.storage.delete(await self.versions.list_outdated(space, id))
        used = set[str]()
        async for item in self.storage.list_objects(space.versions(id)):
            used.add(item.key)
            try:
                summary = await self.versions.read_summary(space, id, int(item.key.rpartition("/")[2]))
            except FilesRefused as error:
                if error.reason is FilesReason.NO_VERSION:  # it is not kept any more
                    continue
                raise
            used |= {f"{space.packs(id)}/{pack}" for pack in summary.packs}
        return used

    def _is_due(self, key: str, unused: set[str]) -> bool:
        """Return whether an unused object is to be removed; remember it if not."""
        unused.add(key)
        return self.clock() - self._unused_since.setdefault(key, self.clock()) >= GRACE_SECONDS

    async def _remove_expired_artifacts(self, space: OwnerSpace) -> int:
        doomed = [
            item
            async for item in self.storage.list_objects(space.artifacts())
            if self.artifacts.is_expired(item.modified)
        ]
        return await self._remove(doomed)
