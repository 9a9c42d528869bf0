"""The TTL controller: deletes executions once they have been finished for `ttlSecondsAfterFinished`."""

import asyncio
import heapq
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from time import time
from typing import Final

from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey, object_key
from mcp_exec_operator.kube.api import OperatorApi

log = logging.getLogger(__name__)

_DEFAULT_SECONDS: Final = 3600
_CONCURRENCY: Final = 8
_BATCH: Final = 50
"""Deletions before the loop yields."""
_RETRY_SECONDS: Final = 20.0


@dataclass(kw_only=True, eq=False)
class TTLController:
    """Finished executions, and when each is due for deletion."""

    api: OperatorApi
    _due: dict[str, float] = field(default_factory=dict)
    """Due times by uid, in seconds since 1970."""
    _heap: list[tuple[float, str, ObjectKey]] = field(default_factory=list)
    _wakeup: asyncio.Event = field(default_factory=asyncio.Event)

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, uid: str) -> bool:
        return uid in self._due

    def observe(self, body: Object) -> None:
        """Take in a finished execution, which may have another TTL than before."""
        uid, due = body["metadata"]["uid"], compute_due_time(body)
        if self._due.get(uid) != due:
            self._due[uid] = due
            heapq.heappush(self._heap, (due, uid, object_key(body)))
            self._wakeup.set()

    def forget(self, uid: str) -> None:
        """Forget a deleted execution."""
        self._due.pop(uid, None)

    def retain(self, namespace: str, uids: set[str]) -> None:
        """Forget the executions of a namespace that are not in a fresh list."""
        for _, uid, key in self._heap:
            if key[0] == namespace and uid not in uids:
                self._due.pop(uid, None)
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
            if self._due.get(uid) == due:
                batch.append((uid, key))
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


def compute_due_time(body: Object) -> float:
    """Return when a finished execution is due for deletion, in seconds since 1970."""
    finished = (body.get("status") or {}).get("finishedAt") or body["metadata"]["creationTimestamp"]
    seconds = (body.get("spec") or {}).get("ttlSecondsAfterFinished", _DEFAULT_SECONDS)
    return datetime.fromisoformat(finished).timestamp() + float(seconds)
