"""Deletion of finished executions: after their TTL, or earlier if a namespace stores too much."""

import asyncio
import heapq
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from time import time
from typing import Final, Protocol

from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_common.util.signals import Signal
from mcp_exec_operator.cluster.kube.api import ExecutionRow, OperatorApi
from mcp_exec_operator.core.stored import StoredBudget, StoredExecution

log = logging.getLogger(__name__)

_UNKNOWN_BYTES: Final = 16 * 1024
"""Bytes of an execution whose status does not say them."""
_DEFAULT_SECONDS: Final = 3600
_MAX_SECONDS: Final = 7 * 24 * 3600.0
_CONCURRENCY: Final = 8
_BATCH: Final = 50
"""Deletions before the loop yields."""
_RETRY_SECONDS: Final = 20.0
_CHOICE_SECONDS: Final = 1.0
"""Time between two choices of executions to delete early: each sorts those of a namespace."""


class FinishedRecorder(Protocol):
    """What records finished executions. Its methods never wait."""

    @property
    def recorded(self) -> Signal[[str]]:
        """Sent with the uid of each execution that has a record."""

    def request(self, uid: str, key: ObjectKey) -> None:
        """Record an execution soon."""

    def is_recorded(self, uid: str) -> bool:
        """Return whether an execution has a record."""

    def discard(self, uid: str) -> None:
        """Discard what is known of a deleted execution."""


@dataclass(kw_only=True, eq=False)
class TTLController:
    """Finished executions, and when each is due for deletion. One that must be recorded first is kept until it is."""

    api: OperatorApi
    max_seconds: float = _MAX_SECONDS
    """Longest time that an execution is kept after its end, whatever its spec says."""
    recorder: FinishedRecorder | None = None
    """None if no records are kept."""
    budget: StoredBudget | None = None
    """None if a namespace may store any number of executions until their TTL."""
    deleted_early: Signal[[list[StoredExecution]]] = field(default_factory=Signal)
    """Sent with executions of all namespaces that were deleted before their TTL."""
    _due: dict[str, float] = field(default_factory=dict)
    """Due times by uid, in seconds since 1970."""
    _observed: dict[str, float] = field(default_factory=dict)
    """When finished executions were observed that the last list may not have, in seconds since 1970."""
    _heap: list[tuple[float, str, ObjectKey]] = field(default_factory=list)
    _held: dict[str, ObjectKey] = field(default_factory=dict)
    """Due executions that have no record yet, by uid."""
    _early: dict[str, StoredExecution] = field(default_factory=dict)
    """Executions that are deleted before their TTL, by uid."""
    _next_choice: float = 0.0
    """Time of the next choice of such, in seconds since 1970."""
    _wakeup: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        if self.recorder is not None:
            self.record_with(self.recorder)

    def record_with(self, recorder: FinishedRecorder) -> None:
        """Keep each execution until it has a record."""
        self.recorder = recorder
        recorder.recorded.connect(self._expire_recorded)

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, uid: str) -> bool:
        return uid in self._due

    def observe(self, body: Object, *, caller: str = "") -> None:
        """Take in a finished execution with its proven caller, if any. It may have another TTL than before."""
        metadata, status = body["metadata"], body.get("status") or {}
        self._observed.setdefault(metadata["uid"], time())
        self._keep(
            metadata,
            finished=status.get("finishedAt") or metadata["creationTimestamp"],
            seconds=(body.get("spec") or {}).get("ttlSecondsAfterFinished", _DEFAULT_SECONDS),
            caller=caller,
            stored_bytes=status.get("storedBytes"),
        )

    def observe_row(self, row: ExecutionRow, *, read_caller: Callable[[Object], str]) -> None:
        """Take in a finished execution of a list. `read_caller` returns the proven caller by its metadata."""
        if row.finished_at is None or row.ttl_seconds is None:
            return
        self._keep(
            row.metadata,
            finished=row.finished_at,
            seconds=row.ttl_seconds,
            caller="" if self.budget is None or row.uid in self._due else read_caller(row.metadata),
            stored_bytes=row.stored_bytes,
        )

    def _keep(self, metadata: Object, *, finished: str, seconds: float, caller: str, stored_bytes: int | None) -> None:
        """Keep a finished execution for so many seconds after its end."""
        uid, key = metadata["uid"], (metadata["namespace"], metadata["name"])
        if self.recorder is not None:
            self.recorder.request(uid, key)
        if metadata.get("deletionTimestamp"):
            # it only waits for finalizers of others: it needs a record, and no other deletion
            self._due.pop(uid, None)
            self._early.pop(uid, None)
            if self.budget is not None:
                self.budget.remove(uid, key[0])
            return
        ended = datetime.fromisoformat(finished).timestamp()
        if self.budget is not None and uid not in self._due:
            size = _UNKNOWN_BYTES if stored_bytes is None else stored_bytes
            self.budget.add(StoredExecution(uid=uid, key=key, caller=caller, finished=ended, bytes=size))
        due = ended + min(float(seconds), self.max_seconds)
        if self._due.get(uid) != due and uid not in self._early:
            self._held.pop(uid, None)
            self._due[uid] = due
            heapq.heappush(self._heap, (due, uid, key))
            self.changed()

    def discard(self, uid: str, namespace: str) -> None:
        """Discard what is known of a deleted execution."""
        self._due.pop(uid, None)
        self._observed.pop(uid, None)
        self._held.pop(uid, None)
        self._early.pop(uid, None)
        if self.budget is not None:
            self.budget.remove(uid, namespace)
        if self.recorder is not None:
            self.recorder.discard(uid)

    def _expire_recorded(self, uid: str) -> None:
        """Delete an execution that was due before it had a record."""
        key = self._held.pop(uid, None)
        if key is not None and uid in self._due:
            heapq.heappush(self._heap, (self._due[uid], uid, key))
            self.changed()

    def discard_missing(self, namespace: str, uids: set[str], *, listed_at: datetime) -> None:
        """Discard the executions of a namespace that are not in a list, which was requested at this time.

        One that was created and ended since then is kept: without it, a late event would show an unfinished execution.
        """
        at = listed_at.timestamp()
        self._observed = {uid: seen for uid, seen in self._observed.items() if seen >= at}
        for _, uid, key in self._heap:
            if key[0] == namespace and uid not in uids and uid not in self._observed:
                self.discard(uid, namespace)
        for uid, key in list(self._held.items()):
            if key[0] == namespace and uid not in uids and uid not in self._observed:
                self.discard(uid, namespace)
        self._heap = [item for item in self._heap if self._due.get(item[1]) == item[0]]
        heapq.heapify(self._heap)

    def changed(self) -> None:
        """Look soon for what is due."""
        self._wakeup.set()

    async def run(self) -> None:
        """Delete due executions until cancelled."""
        while True:
            self._wakeup.clear()
            self._choose_early()
            if batch := self._take_due():
                chunks = [batch[start::_CONCURRENCY] for start in range(min(_CONCURRENCY, len(batch)))]
                early = [one for each in await asyncio.gather(*map(self._delete, chunks)) for one in each]
                if early:
                    self.deleted_early.emit(early)
                continue
            delay = max(0.05, self._heap[0][0] - time()) if self._heap else None
            if self.budget is not None and self.budget.is_over:
                delay = _CHOICE_SECONDS if delay is None else min(delay, _CHOICE_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._wakeup.wait()

    def _choose_early(self) -> None:
        """Make executions due that the budget of their namespace has no room for."""
        now = time()
        if self.budget is None or not self.budget.is_over or now < self._next_choice:
            return
        self._next_choice = now + _CHOICE_SECONDS
        for uid, execution in self.budget.choose(now).items():
            if uid not in self._held:  # else it is due, and deleted once it has a record
                self._early[uid] = execution
                self._due[uid] = now
                heapq.heappush(self._heap, (now, uid, execution.key))

    def _take_due(self) -> list[tuple[str, ObjectKey]]:
        batch: list[tuple[str, ObjectKey]] = []
        while self._heap and self._heap[0][0] <= time() and len(batch) < _BATCH:
            due, uid, key = heapq.heappop(self._heap)
            if self._due.get(uid) != due:
                continue
            if self.recorder is None or self.recorder.is_recorded(uid):
                batch.append((uid, key))
            else:
                self._held[uid] = key
        return batch

    async def _delete(self, chunk: list[tuple[str, ObjectKey]]) -> list[StoredExecution]:
        """Delete executions, and return those that were deleted early."""
        early: list[StoredExecution] = []
        for uid, key in chunk:
            execution = self._early.get(uid)  # the watch may report the deletion before this request ends
            try:
                await self.api.delete("CodeExecution", *key, uid=uid, what="execution-delete")
                self._due.pop(uid, None)
                if self.budget is not None:
                    self.budget.remove(uid, key[0])
                self._early.pop(uid, None)
                if execution is not None:
                    early.append(execution)
            except ApiError as error:
                log.warning("an execution was not deleted: %s", error, extra={"execution": key[1]})
                self._due[uid] = time() + _RETRY_SECONDS
                heapq.heappush(self._heap, (self._due[uid], uid, key))
        return early
