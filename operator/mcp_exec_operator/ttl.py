"""The TTL controller: deletes executions once they have been finished for `ttlSecondsAfterFinished`."""

import asyncio
import heapq
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from time import time
from typing import Final, Protocol

from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey, object_key
from mcp_exec_operator.kube.api import OperatorApi
from mcp_exec_operator.kube.execution_row import ExecutionRow

log = logging.getLogger(__name__)

_DEFAULT_SECONDS: Final = 3600
_MAX_SECONDS: Final = 7 * 24 * 3600.0
_CONCURRENCY: Final = 8
_BATCH: Final = 50
"""Deletions before the loop yields."""
_RETRY_SECONDS: Final = 20.0


class FinishedRecorder(Protocol):
    """What records finished executions. Its methods never wait."""

    def request(self, uid: str, key: ObjectKey) -> None:
        """Record an execution soon."""

    def is_recorded(self, uid: str) -> bool:
        """Return whether an execution has a record."""

    def forget(self, uid: str) -> None:
        """Forget a deleted execution."""


@dataclass(kw_only=True, eq=False)
class TTLController:
    """Finished executions, and when each is due for deletion. One that must be recorded first is kept until it is."""

    api: OperatorApi
    max_seconds: float = _MAX_SECONDS
    """Longest time that an execution is kept after its end, whatever its spec says."""
    recorder: FinishedRecorder | None = None
    """None if no records are kept."""
    _due: dict[str, float] = field(default_factory=dict)
    """Due times by uid, in seconds since 1970."""
    _observed: dict[str, float] = field(default_factory=dict)
    """When finished executions were observed that the last list may not have, in seconds since 1970."""
    _heap: list[tuple[float, str, ObjectKey]] = field(default_factory=list)
    _held: dict[str, ObjectKey] = field(default_factory=dict)
    """Due executions that have no record yet, by uid."""
    _wakeup: asyncio.Event = field(default_factory=asyncio.Event)

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, uid: str) -> bool:
        return uid in self._due

    def observe(self, body: Object) -> None:
        """Take in a finished execution, which may have another TTL than before."""
        metadata = body["metadata"]
        finished = (body.get("status") or {}).get("finishedAt") or metadata["creationTimestamp"]
        seconds = (body.get("spec") or {}).get("ttlSecondsAfterFinished", _DEFAULT_SECONDS)
        self._observed.setdefault(metadata["uid"], time())
        self._schedule(metadata["uid"], object_key(body), self._compute_due_time(finished, seconds))

    def observe_row(self, row: ExecutionRow) -> None:
        """Take in a finished execution of a list."""
        if row.finished_at is not None and row.ttl_seconds is not None:
            self._schedule(row.uid, row.key, self._compute_due_time(row.finished_at, row.ttl_seconds))

    def _schedule(self, uid: str, key: ObjectKey, due: float) -> None:
        if self.recorder is not None:
            self.recorder.request(uid, key)
        if self._due.get(uid) != due:
            self._held.pop(uid, None)
            self._due[uid] = due
            heapq.heappush(self._heap, (due, uid, key))
            self._wakeup.set()

    def _compute_due_time(self, finished: str, seconds: float) -> float:
        """Return when a finished execution is due for deletion, in seconds since 1970."""
        return datetime.fromisoformat(finished).timestamp() + min(float(seconds), self.max_seconds)

    def forget(self, uid: str) -> None:
        """Forget a deleted execution."""
        self._due.pop(uid, None)
        self._observed.pop(uid, None)
        self._held.pop(uid, None)
        if self.recorder is not None:
            self.recorder.forget(uid)

    def release(self, uid: str) -> None:
        """Delete an execution that was due before it had a record."""
        key = self._held.pop(uid, None)
        if key is not None and uid in self._due:
            heapq.heappush(self._heap, (self._due[uid], uid, key))
            self._wakeup.set()

    def retain(self, namespace: str, uids: set[str], *, listed_at: datetime) -> None:
        """Forget the executions of a namespace that are not in a list, which was requested at this time.

        One that was created and ended since then is kept: without it, a late event would show an unfinished execution.
        """
        at = listed_at.timestamp()
        self._observed = {uid: seen for uid, seen in self._observed.items() if seen >= at}
        for _, uid, key in self._heap:
            if key[0] == namespace and uid not in uids and uid not in self._observed:
                self.forget(uid)
        for uid, key in list(self._held.items()):
            if key[0] == namespace and uid not in uids and uid not in self._observed:
                self.forget(uid)
        self._heap = [item for item in self._heap if self._due.get(item[1]) == item[0]]
        heapq.heapify(self._heap)

    async def run(self) -> None:
        """Delete due executions until cancelled."""
        while True:
            self._wakeup.clear()
            if batch := self._take_due():
                chunks = [batch[start::_CONCURRENCY] for start in range(min(_CONCURRENCY, len(batch)))]
                await asyncio.gather(*(self._delete(chunk) for chunk in chunks))
                continue
            delay = max(0.05, self._heap[0][0] - time()) if self._heap else None
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._wakeup.wait()

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

    async def _delete(self, chunk: list[tuple[str, ObjectKey]]) -> None:
        for uid, key in chunk:
            try:
                await self.api.delete_execution(*key, uid=uid)
                self._due.pop(uid, None)
            except ApiError as error:
                log.warning("an execution was not deleted: %s", error, extra={"execution": key[1]})
                self._due[uid] = time() + _RETRY_SECONDS
                heapq.heappush(self._heap, (self._due[uid], uid, key))
