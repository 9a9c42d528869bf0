"""Deletion of finished executions: after their TTL, or earlier if a namespace stores too much."""

import asyncio
import heapq
import logging
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from time import time
from typing import Final, Protocol

from mcp_exec_api.meta import now
from mcp_exec_api.reasons.event import EventReason
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.util.signals import Signal
from mcp_exec_operator.cluster.kube.api import ExecutionRow, OperatorApi, build_event
from mcp_exec_operator.metrics import Metrics

log = logging.getLogger(__name__)

_BUDGET_SHARE: Final = 0.75
"""Share of the namespace's limits that finished executions may take: the gateway refuses new ones at the limits."""
_KEPT_SHARE: Final = 0.875
"""Share of the budget that is left after deletions, so that they come in batches."""
_GRACE_SECONDS: Final = 30.0
"""Lowest age of an execution that is deleted early. Requests that waited for its end have their answer by then."""
_UNKNOWN_BYTES: Final = 16 * 1024
"""Bytes of an execution whose status does not say them."""
_GATHER_SECONDS: Final = 10.0
"""How long the deletions of a namespace are gathered into one Event."""
_EVENT_SECONDS: Final = 2.0
"""How long the creation of an Event may take."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredExecution:
    """A finished execution."""

    uid: str
    key: ObjectKey
    caller: str
    """Its proven caller; empty if there is none."""
    finished: float
    """Time of its end, in seconds since 1970."""
    bytes: int
    """Bytes of the object in the API server, at most."""


@dataclass(kw_only=True, eq=False)
class _Namespace:
    executions: dict[str, StoredExecution] = field(default_factory=dict)
    """By uid, without those that are chosen."""
    bytes: int = 0


@dataclass(kw_only=True, eq=False)
class StoredBudget:
    """Finished executions by namespace, and which of them are deleted early.

    If those of a namespace take more than three quarters of its limits, the oldest are deleted until they take an
    eighth less. Each comes from the caller that stores most of what is exceeded, so that a caller's flood deletes the
    flood. For bytes, only executions larger than an equal share of the limit count: small ones would be lost for
    nothing.
    """

    max_stored: int
    """Maximum executions of a namespace."""
    max_stored_bytes: int
    """Maximum bytes of a namespace's executions."""
    _namespaces: dict[str, _Namespace] = field(default_factory=lambda: defaultdict(_Namespace))
    _over: set[str] = field(default_factory=set)
    """Namespaces that may be over their budget."""

    def add(self, execution: StoredExecution) -> None:
        """Add a finished execution that is not in it."""
        namespace = self._namespaces[execution.key[0]]
        namespace.executions[execution.uid] = execution
        namespace.bytes += execution.bytes
        if self._is_over(namespace):
            self._over.add(execution.key[0])

    def remove(self, uid: str, namespace: str) -> None:
        """Forget an execution."""
        known = self._namespaces.get(namespace)
        if known is None or (execution := known.executions.pop(uid, None)) is None:
            return
        known.bytes -= execution.bytes
        if not known.executions:
            del self._namespaces[namespace]

    @property
    def is_over(self) -> bool:
        """Whether a namespace may be over its budget."""
        return bool(self._over)

    def choose(self, now: float) -> dict[str, StoredExecution]:
        """Return the executions to delete at this time, by uid. They no longer count."""
        chosen: dict[str, StoredExecution] = {}
        for name in list(self._over):
            namespace = self._namespaces.get(name) or _Namespace()
            picked = self._choose(namespace, now)
            for uid in picked:
                self.remove(uid, name)
            chosen |= picked
            if not self._is_over(namespace):
                self._over.discard(name)
        return chosen

    def _is_over(self, namespace: _Namespace) -> bool:
        too_many = len(namespace.executions) > _BUDGET_SHARE * self.max_stored
        return too_many or namespace.bytes > _BUDGET_SHARE * self.max_stored_bytes

    def _choose(self, namespace: _Namespace, now: float) -> dict[str, StoredExecution]:
        kept = _BUDGET_SHARE * _KEPT_SHARE
        picked: dict[str, StoredExecution] = {}
        if not self._is_over(namespace):
            return picked
        old = {uid: each for uid, each in namespace.executions.items() if each.finished + _GRACE_SECONDS <= now}
        if namespace.bytes > _BUDGET_SHARE * self.max_stored_bytes:
            fair = self.max_stored_bytes / self.max_stored
            large = {uid: each for uid, each in old.items() if each.bytes > fair}
            weights = {uid: each.bytes for uid, each in namespace.executions.items()}
            picked = _pick(namespace, large, weights, surplus=namespace.bytes - kept * self.max_stored_bytes)
        count = len(namespace.executions) - len(picked)
        if count > _BUDGET_SHARE * self.max_stored:
            rest = {uid: each for uid, each in old.items() if uid not in picked}
            weights = {uid: 1 for uid in namespace.executions if uid not in picked}
            picked |= _pick(namespace, rest, weights, surplus=count - kept * self.max_stored)
        return picked


def _pick(
    namespace: _Namespace, candidates: dict[str, StoredExecution], weights: dict[str, int], *, surplus: float
) -> dict[str, StoredExecution]:
    """Return candidates that weigh as much as the surplus: each is the oldest of whoever has most at that point."""
    totals: dict[str, int] = defaultdict(int)
    for uid, weight in weights.items():
        totals[namespace.executions[uid].caller] += weight
    newest_first = sorted(candidates, key=lambda uid: candidates[uid].finished, reverse=True)
    queues: dict[str, list[str]] = defaultdict(list)
    for uid in newest_first:
        queues[candidates[uid].caller].append(uid)
    largest = [(-totals[caller], caller) for caller in queues]
    heapq.heapify(largest)
    picked: dict[str, StoredExecution] = {}
    while surplus > 0 and largest:
        total, caller = heapq.heappop(largest)
        uid = queues[caller].pop()
        picked[uid] = candidates[uid]
        surplus -= weights[uid]
        if queues[caller]:
            heapq.heappush(largest, (total + weights[uid], caller))
    return picked


@dataclass(kw_only=True)
class _Deleted:
    count: int = 0
    bytes: int = 0


@dataclass(kw_only=True, eq=False)
class EarlyDeletions:
    """Reports deletions: each in a metric, and those of a namespace within ten seconds in one Event.

    The Event is about the last of them, since an Event of a namespace needs an object in it.
    """

    api: OperatorApi
    tasks: TaskRegistry
    metrics: Metrics
    _gathered: dict[str, _Deleted] = field(default_factory=dict)
    _last: dict[str, StoredExecution] = field(default_factory=dict)
    """Last deleted execution by namespace, of those that are gathered."""

    def report(self, deleted: list[StoredExecution]) -> None:
        """Count deleted executions, and report them soon. Never waits."""
        for execution in deleted:
            namespace = execution.key[0]
            self.metrics.deleted_early.labels(namespace).inc()
            if namespace not in self._gathered:
                self._gathered[namespace] = _Deleted()
                self.tasks.spawn(self._send(namespace), name=f"Event of early deletions in {namespace}")
            self._gathered[namespace].count += 1
            self._gathered[namespace].bytes += execution.bytes
            self._last[namespace] = execution

    async def _send(self, namespace: str) -> None:
        await asyncio.sleep(_GATHER_SECONDS)
        gathered, last = self._gathered.pop(namespace), self._last.pop(namespace)
        message = (
            f"deleted {gathered.count} finished executions with {gathered.bytes / 2**20:.1f} MiB before their TTL, "
            "because the namespace stores almost as many or as much as the chart's maxStored and maxStoredBytes allow"
        )
        log.warning(message, extra={"namespace": namespace})
        event = build_event(
            "CodeExecution",
            key=last.key,
            uid=last.uid,
            kind=EventReason.DELETED_EARLY.type,
            reason=EventReason.DELETED_EARLY,
            message=message,
            moment=now(),
        )
        try:
            async with asyncio.timeout(_EVENT_SECONDS):
                await self.api.create_event(event)
        except (ApiError, TimeoutError) as error:
            log.warning("no Event was created for early deletions: %s", error, extra={"namespace": namespace})


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
