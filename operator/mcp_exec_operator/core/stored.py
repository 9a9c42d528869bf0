"""Finished executions that a namespace stores, which of them are deleted before their TTL, and the report of that."""

import asyncio
import heapq
import logging
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_api.meta import now
from mcp_exec_api.reasons.event import EventReason
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.events import build_event
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.metrics import Metrics

log = logging.getLogger(__name__)

_BUDGET_SHARE: Final = 0.75
"""Share of the namespace's limits that finished executions may take: the gateway refuses new ones at the limits."""
_KEPT_SHARE: Final = 0.875
"""Share of the budget that is left after deletions, so that they come in batches."""
_GRACE_SECONDS: Final = 30.0
"""Lowest age of an execution that is deleted early. Requests that waited for its end have their answer by then."""
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
