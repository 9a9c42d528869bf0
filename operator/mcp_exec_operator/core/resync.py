"""Periodic full relist of a namespace's caches, once before the first pod is claimed and then every few seconds.

It finds objects that watches missed, executions without a task, and pods without an execution. Executions are listed
without code, context and output; only those that are unfinished and unknown, or have changed, are then read.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Final, Protocol

from mcp_exec_api.meta import now
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_common.util.backoff import delays
from mcp_exec_operator.cluster.kube.api import GONE_CODES, ExecutionRow, OperatorApi
from mcp_exec_operator.core.executions.controller import ExecutionController
from mcp_exec_operator.core.executions.execution import Execution
from mcp_exec_operator.core.pools.registry import PoolRegistry
from mcp_exec_operator.metrics import Metrics

log = logging.getLogger(__name__)

_STALLED_AFTER: Final = 3
"""The watches count as stalled after so many resyncs in a row that find objects which no watch delivered."""
_READS: Final = 4
"""Executions that are read at the same time."""
_REST: Final = 5.0
"""Pause after a resync, in durations of that resync: lists of large objects are work for the API server."""
_MAX_PAUSE_SECONDS: Final = 120.0
_FIRST_RETRY_SECONDS: Final = 0.5
"""Pause after a first resync that failed. The namespace runs nothing until one succeeds."""


@dataclass(kw_only=True, eq=False)
class ResyncPace:
    """Lets the namespaces of a process resync one after another, with pauses that suit the duration of all of them."""

    interval_seconds: float
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the resync that runs."""
    durations: dict[str, float] = field(default_factory=dict)
    """Seconds that the last resync of each namespace took."""

    @property
    def pause_seconds(self) -> float:
        """Seconds between two resyncs of a namespace."""
        return max(self.interval_seconds, min(_REST * sum(self.durations.values()), _MAX_PAUSE_SECONDS))


class PodHolders(Protocol):
    """Objects of a feature that keep pods beyond one execution."""

    async def relist(self) -> list[Object]:
        """List the objects of the namespace. Raises ApiError."""

    def replace(self, bodies: list[Object], *, listed_at: datetime) -> int:
        """Process such a list. Return how many objects no watch had reported."""

    def list_pods(self) -> set[ObjectKey]:
        """Return namespace and name of the pods that are kept."""


@dataclass(kw_only=True, eq=False)
class Resync:
    """Compares the caches of one namespace with lists of the API server."""

    api: OperatorApi
    pools: PoolRegistry
    holders: tuple[PodHolders, ...]
    executions: ExecutionController
    metrics: Metrics
    namespace: str
    pace: ResyncPace
    suspect: Callable[[str], None]
    """Called with the namespace if a list of it is refused."""
    done: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the first resync has succeeded."""
    tried: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the first resync has ended, whether or not it succeeded."""
    _moved_at: float | None = None
    """When a running resync made progress last, by the monotonic clock; None if none runs."""
    _failing_since: float | None = None
    """When the first resync failed since the last success, by the monotonic clock; None if the last one succeeded."""
    _missed_in_a_row: int = 0
    """Resyncs in a row that found objects which no watch delivered."""
    _requested: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to resync at once."""

    def find_stall(self, *, stuck_seconds: float) -> str:
        """Return why neither resyncs nor watches make progress, or an empty text.

        A resync that takes long because it has much to read is no problem, and a restart would not help it.
        """
        if self._moved_at is not None and (silence := monotonic() - self._moved_at) > stuck_seconds:
            return f"no resync has made progress for {silence:.0f} s"
        if self._missed_in_a_row >= _STALLED_AFTER:
            return "the watches have stalled: resyncs find objects that no watch delivers"
        return ""

    def find_failure(self, *, failing_seconds: float) -> str:
        """Return for how long resyncs have failed, or an empty text if that is not too long."""
        if self._failing_since is not None and (failing := monotonic() - self._failing_since) > failing_seconds:
            return f"resyncs have failed for {failing:.0f} s"
        return ""

    def request(self) -> None:
        """Resync at once: watches begin again, and report only what changes from now on."""
        self._requested.set()

    async def begin(self) -> None:
        """Resync until one succeeds."""
        for pause in delays(first=_FIRST_RETRY_SECONDS, last=self.pace.interval_seconds):
            await self._try(first=True)
            if self.done.is_set():
                return
            await asyncio.sleep(pause)

    async def run(self) -> None:
        """Resync at each interval and at each request, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.pace.pause_seconds):
                    await self._requested.wait()
            requested = self._requested.is_set()
            self._requested.clear()
            await self._try(first=requested)

    async def _try(self, *, first: bool) -> None:
        """Resync once. A failure is logged: it concerns only this namespace."""
        try:
            await self.resync(first=first)
        except ApiError as error:
            log.warning("a resync of namespace %s failed: %s", self.namespace, error)
            if error.code in GONE_CODES:
                self.suspect(self.namespace)
            else:
                self._note_failure()
        except Exception:
            log.exception("a resync of namespace %s failed", self.namespace)
            self._note_failure()
        finally:
            self.tried.set()

    async def resync(self, *, first: bool = True) -> None:
        """Relist the namespace once. Raises ApiError.

        What the first resync after the begin of a watch finds was not missed by the watch.
        """
        if self.namespace in self.pools.closed:
            return  # the rights in it are deleted with it
        at_once = not self.done.is_set()
        async with self.pace.turn:
            self._moved_at = began = monotonic()
            try:
                with self.metrics.time_resync():
                    missed = await self._relist()
            finally:
                self._moved_at = None
                self.pace.durations[self.namespace] = monotonic() - began
        held = self.executions.list_pods().union(*(each.list_pods() for each in self.holders))
        self.pools.delete_leftovers(held, at_once=at_once)
        if not first:
            self.metrics.missed.inc(missed)
            self._missed_in_a_row = self._missed_in_a_row + 1 if missed else 0
        self._failing_since = None
        self.done.set()

    def _note_failure(self) -> None:
        self.metrics.resync_failures.inc()
        if self._failing_since is None:
            self._failing_since = monotonic()

    async def _relist(self) -> int:
        """Return how many objects no watch had delivered.

        Pods are listed last, so that the pod of a listed execution is in the list or gone.
        """
        namespace = self.namespace
        listed_at, pools_listed_at = now(), monotonic()
        pools = await self.api.list_pools(namespace)
        kept = [(each, await each.relist()) for each in self.holders]
        uids: set[str] = set()
        unread: list[ExecutionRow] = []

        def take(row: ExecutionRow) -> None:
            self._moved_at = monotonic()
            uids.add(row.uid)
            if self.executions.needs_reading(row):
                unread.append(row)

        await self.api.scan_executions(namespace, take)
        records = await self._read(unread)
        pods_listed_at = monotonic()
        pods = await self.api.list_pods(namespace)
        missed = self.pools.replace(namespace, pools, pods, pools_listed_at=pools_listed_at, listed_at=pods_listed_at)
        # before executions: a bound one takes its turn at what keeps its pod
        missed += sum(each.replace(bodies, listed_at=listed_at) for each, bodies in kept)
        missed += sum(self.executions.start(record) for record in records)
        self.executions.discard_missing(namespace, uids, listed_at=listed_at)
        return missed

    async def _read(self, rows: list[ExecutionRow]) -> list[Execution]:
        """Read executions, and return the records of those that are unfinished and unknown, oldest first."""
        rows.sort(key=lambda row: row.created)
        records: list[Execution | None] = []
        for start in range(0, len(rows), _READS):
            records += await asyncio.gather(*(self._read_one(row) for row in rows[start : start + _READS]))
            self._moved_at = monotonic()
        return [record for record in records if record is not None]

    async def _read_one(self, row: ExecutionRow) -> Execution | None:
        body = await self.api.get("CodeExecution", *row.key)
        return None if body is None else self.executions.prepare(body)
