"""States of workspaces: their identity, settings and last use.

A state is an object with a number; a change is the object with the next one, created only if nobody else has. So two
writers never overwrite each other's change, on a volume or in S3.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from secrets import token_hex
from typing import Any, Final
from weakref import WeakValueDictionary

from cachetools import LRUCache

from mcp_exec_api.wire.workspaces import WorkspaceSettings
from mcp_exec_broker.features.files.keys import WORKSPACES, OwnerSpace, number_key, split_key
from mcp_exec_broker.features.files.requests import FilesRefused
from mcp_exec_broker.features.files.storage import Storage, StoredObject
from mcp_exec_broker.features.files.usage import StoreLimits
from mcp_exec_common.broker.files import FilesReason

_MAX_CACHED: Final = 10_000
_ATTEMPTS: Final = 10
_NAMES_PER_WORKSPACE: Final = 10
"""Names of an owner for each workspace that is allowed: deleted ones stay until the collector removes them."""
TOUCH_AFTER: Final = timedelta(minutes=5)
"""Time until a use is written down again."""


@dataclass(frozen=True, kw_only=True)
class WorkspaceState:
    """A workspace as it is known without its versions."""

    name: str
    id: str
    number: int
    """Number of the state."""
    created_at: datetime
    used_at: datetime
    caller: str = ""
    """Digest of the caller that created it, for one of its users."""
    settings: WorkspaceSettings = field(default_factory=WorkspaceSettings)
    is_deleted: bool = False

    def get_ttl(self, limits: StoreLimits) -> timedelta:
        """Return the time of its deletion, counted from its last use."""
        return timedelta(seconds=self.settings.ttl_seconds or limits.workspace_ttl_seconds)

    def get_max_bytes(self, limits: StoreLimits) -> int:
        """Return the most bytes of its files."""
        return min(self.settings.max_bytes or limits.workspace_bytes, limits.workspace_bytes)

    def get_max_files(self, limits: StoreLimits) -> int:
        """Return the most files."""
        return min(self.settings.max_files or limits.workspace_files, limits.workspace_files)

    def encode(self) -> bytes:
        """Return the object of the store. No two are equal."""
        content = {
            "id": self.id,
            "createdAt": self.created_at.isoformat(),
            "usedAt": self.used_at.isoformat(),
            "caller": self.caller,
            "settings": self.settings.to_api(),
            "deleted": self.is_deleted,
            "nonce": token_hex(8),
        }
        return json.dumps(content).encode()


def _decode_state(key: str, data: bytes) -> WorkspaceState:
    content: dict[str, Any] = json.loads(data)
    folder, number = split_key(key)
    return WorkspaceState(
        name=split_key(folder)[1],
        id=content["id"],
        number=int(number),
        created_at=datetime.fromisoformat(content["createdAt"]),
        used_at=datetime.fromisoformat(content["usedAt"]),
        caller=content.get("caller", ""),
        settings=WorkspaceSettings.model_validate(content["settings"]),
        is_deleted=content["deleted"],
    )


@dataclass(kw_only=True, eq=False)
class WorkspaceStates:
    """Reads and writes states."""

    storage: Storage
    limits: StoreLimits
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _cache: LRUCache[tuple[str, str], WorkspaceState] = field(default_factory=lambda: LRUCache(_MAX_CACHED))
    """States by key and tag."""
    _locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    """Locks of those who create workspaces, by account."""
    _drafts: WeakValueDictionary[tuple[OwnerSpace, str], WorkspaceState] = field(default_factory=WeakValueDictionary)
    """Workspaces that are being written and not stored yet, as long as a request writes one."""

    async def find(self, space: OwnerSpace, name: str) -> WorkspaceState | None:
        """Return a workspace's state, or None if the owner has none of this name."""
        state = await self._find_last(space, name)
        return None if state is None or state.is_deleted else state

    async def get(self, space: OwnerSpace, name: str) -> WorkspaceState:
        """Return a workspace's state. Raises FilesRefused."""
        state = await self.find(space, name)
        if state is None:
            raise FilesRefused(FilesReason.NO_WORKSPACE, f"there is no workspace {name!r}")
        return state

    async def list_states(self, space: OwnerSpace) -> list[WorkspaceState]:
        """Return an owner's workspaces by name."""
        return [state for state in await self.list_all(space) if not state.is_deleted]

    async def list_all(self, space: OwnerSpace) -> list[WorkspaceState]:
        """Return an owner's workspaces by name, with deleted ones that the collector has not removed."""
        return await self._list_newest(space.states())

    async def count_of_caller(self, space: OwnerSpace) -> int:
        """Return how many workspaces of the namespace the caller has created, for whatever user."""
        found = await self._list_newest(f"{WORKSPACES}/{space.namespace}")
        return sum(state.caller == space.caller and not state.is_deleted for state in found)

    async def _list_newest(self, folder: str) -> list[WorkspaceState]:
        newest: dict[str, StoredObject] = {}
        async for item in self.storage.list_objects(folder):
            name = split_key(item.key)[0]
            if name not in newest or newest[name].key < item.key:
                newest[name] = item
        found = [await self._read(item) for _, item in sorted(newest.items())]
        return [state for state in found if state is not None]

    async def open(self, space: OwnerSpace, name: str) -> WorkspaceState:
        """Return a workspace's state; create it if the owner has none of this name. Raises FilesRefused."""
        return await self._change(space, name, lambda state: state, creates=True)

    async def draft(self, space: OwnerSpace, name: str, *, caller_limit: int | None = None) -> WorkspaceState:
        """Return a workspace's state; if the owner has none of this name, a draft that `keep` stores.

        Concurrent requests of this replica share a draft. Raises FilesRefused if the workspace would be one too many.
        """
        state = await self.find(space, name)
        if state is not None:
            return state
        await self._check_count(space, caller_limit)
        return self._drafts.setdefault((space, name), self._build(space, name))

    async def keep(
        self, space: OwnerSpace, state: WorkspaceState, *, caller_limit: int | None = None
    ) -> WorkspaceState:
        """Store a draft, whose first version is complete, and return the state. Raises FilesRefused.

        `caller_limit` is the number of workspaces that the owner's caller may have, for all of its users.
        """
        if state.number > 0:
            return state
        kept = await self._change(
            space, state.name, lambda last: last, creates=True, draft=state, caller_limit=caller_limit
        )
        if kept.id != state.id:
            raise FilesRefused(FilesReason.BUSY, f"others created workspace {state.name!r} meanwhile; repeat")
        return kept

    async def set(
        self, space: OwnerSpace, name: str, settings: WorkspaceSettings, *, caller_limit: int | None = None
    ) -> WorkspaceState:
        """Replace a workspace's settings, or create it. `caller_limit` is that of `keep`. Raises FilesRefused."""

        def change(state: WorkspaceState) -> WorkspaceState:
            return replace(state, settings=settings, used_at=self.now())

        return await self._change(space, name, change, creates=True, caller_limit=caller_limit)

    async def touch(self, space: OwnerSpace, state: WorkspaceState) -> None:
        """Write down that a workspace is used, if that is due."""

        def use(current: WorkspaceState) -> WorkspaceState:
            is_due = current.id == state.id and self.now() - current.used_at >= TOUCH_AFTER
            return replace(current, used_at=self.now()) if is_due else current

        if use(state) is not state:
            await self._change(space, state.name, use)

    async def delete(
        self, space: OwnerSpace, name: str, *, unless: Callable[[WorkspaceState], bool] | None = None
    ) -> None:
        """Delete a workspace, unless a condition holds. The collector removes its data. Raises FilesRefused."""

        def mark(state: WorkspaceState) -> WorkspaceState:
            return state if unless is not None and unless(state) else replace(state, is_deleted=True)

        await self._change(space, name, mark)

    async def remove(self, space: OwnerSpace, state: WorkspaceState) -> None:
        """Remove what is left of a deleted workspace. One that was made after it, of the same name, stays."""
        last = number_key(space.states(state.name), state.number)
        keys = [item.key async for item in self.storage.list_objects(space.states(state.name)) if item.key <= last]
        await self.storage.delete(sorted(keys))  # the mark of the deletion last: an older state would count again

    async def _change(
        self,
        space: OwnerSpace,
        name: str,
        change: Callable[[WorkspaceState], WorkspaceState],
        *,
        creates: bool = False,
        draft: WorkspaceState | None = None,
        caller_limit: int | None = None,
    ) -> WorkspaceState:
        attempt = partial(
            self._try_to_change, space, name, change, creates=creates, draft=draft, caller_limit=caller_limit
        )
        last = await self._find_last(space, name)
        if creates and (last is None or last.is_deleted):
            # a caller, which has all users of its own, creates one after the other, so that the counts hold
            async with self._locks.setdefault(space.account, asyncio.Lock()):
                return await attempt()
        return await attempt(last=last)

    def _build(self, space: OwnerSpace, name: str) -> WorkspaceState:
        moment = self.now()
        return WorkspaceState(
            name=name, id=token_hex(16), number=0, created_at=moment, used_at=moment, caller=space.caller
        )

    async def _try_to_change(
        self,
        space: OwnerSpace,
        name: str,
        change: Callable[[WorkspaceState], WorkspaceState],
        *,
        creates: bool,
        draft: WorkspaceState | None,
        caller_limit: int | None,
        last: WorkspaceState | None = None,
    ) -> WorkspaceState:
        for _ in range(_ATTEMPTS):
            last = last or await self._find_last(space, name)
            if last is not None and not last.is_deleted:
                new = change(last)
                if new is last:
                    return last
            elif draft is not None and last is not None and last.id == draft.id:
                raise FilesRefused(FilesReason.NO_WORKSPACE, f"workspace {name!r} was deleted meanwhile")
            elif creates:
                await self._check_count(space, caller_limit)
                new = change(draft or self._drafts.get((space, name)) or self._build(space, name))
            else:
                raise FilesRefused(FilesReason.NO_WORKSPACE, f"there is no workspace {name!r}")
            new = replace(new, number=last.number + 1 if last else 1)
            if await self.storage.create(number_key(space.states(name), new.number), new.encode()):
                self._drafts.pop((space, name), None)
                if last is not None:
                    await self.storage.delete([number_key(space.states(name), last.number)])
                return new
            last = None
        raise FilesRefused(FilesReason.BUSY, f"others change workspace {name!r} all the time; repeat later")

    async def _check_count(self, space: OwnerSpace, caller_limit: int | None) -> None:
        states = await self.list_all(space)
        count = sum(not state.is_deleted for state in states)
        if count >= self.limits.owner_workspaces:
            raise FilesRefused(
                FilesReason.TOO_LARGE, f"the owner has {count} workspaces, which is the limit: delete one"
            )
        if len(states) >= _NAMES_PER_WORKSPACE * self.limits.owner_workspaces:
            raise FilesRefused(
                FilesReason.BUSY,
                f"the owner has {len(states)} workspaces, {len(states) - count} of them deleted, which is the limit: "
                "create one when deleted ones were removed, which takes an hour or two",
            )
        if caller_limit is not None and (owned := await self.count_of_caller(space)) >= caller_limit:
            raise FilesRefused(
                FilesReason.TOO_LARGE,
                f"the caller has {owned} workspaces, those of all its users included, and its limit is {caller_limit}: "
                "delete one",
            )

    async def _find_last(self, space: OwnerSpace, name: str) -> WorkspaceState | None:
        for _ in range(_ATTEMPTS):
            last: StoredObject | None = None
            async for item in self.storage.list_objects(space.states(name)):
                if last is None or last.key < item.key:
                    last = item
            if last is None:
                return None
            state = await self._read(last)
            if state is not None:  # else it was replaced in between
                return state
        raise FilesRefused(FilesReason.BUSY, f"others change workspace {name!r} all the time; repeat later")

    async def _read(self, item: StoredObject) -> WorkspaceState | None:
        state = self._cache.get((item.key, item.tag))
        if state is None:
            data = await self.storage.read(item.key)
            if data is None:
                return None
            state = self._cache[item.key, item.tag] = _decode_state(item.key, data)
        return state
