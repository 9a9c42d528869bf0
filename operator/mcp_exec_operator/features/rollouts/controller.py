"""The rollout controller: drives stages, and raises the warm pods of their pools before a stage begins."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Final

from mcp_exec_api.meta import now
from mcp_exec_api.rollout_status import ExecutionRolloutStatus
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_common.rollouts.progress import RolloutMeasures, RolloutProgress, advance, refuse
from mcp_exec_common.util.backoff import Backoff
from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.core.pools.registry import PoolRegistry
from mcp_exec_operator.features.rollouts.measures import (
    NO_RECORDS,
    MeasuresCache,
    RolloutIdentity,
    add_pool_measures,
)
from mcp_exec_operator.features.rollouts.record import RolloutMetrics, RolloutRecord, build_events, build_status

log = logging.getLogger(__name__)

_TICK_SECONDS: Final = 1.0
"""Interval of steps while a rollout has not ended: the shortest stage lasts a second."""
_GATHER_SECONDS: Final = 0.05
"""How long events are gathered before a step: each own write brings one."""
_MAX_CONCURRENT: Final = 8
"""Rollouts whose measures are read at a time."""


@dataclass(kw_only=True, eq=False)
class RolloutController:
    """All rollouts. `observe` never waits."""

    api: OperatorApi
    pools: PoolRegistry
    measures: MeasuresCache
    metrics: RolloutMetrics
    clock: Callable[[], datetime] = now
    _records: dict[ObjectKey, RolloutRecord] = field(default_factory=dict)
    _backoffs: dict[ObjectKey, Backoff] = field(default_factory=dict)
    """Of rollouts whose status could not be written."""
    _wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MAX_CONCURRENT))

    def observe(self, body: Object, deleted: bool) -> None:
        """Take in a watch event."""
        self._take(body, deleted=deleted)
        self.changed()

    def changed(self) -> None:
        """Step soon."""
        self._wakeup.set()

    def _take(self, body: Object, *, deleted: bool) -> None:
        record = RolloutRecord.from_object(body) if not deleted else None
        known = self._records.pop((body["metadata"]["namespace"], body["metadata"]["name"]), None)
        if known is not None and (record is None or record.uid != known.uid):
            self.measures.forget(known.uid)
            self.metrics.discard(known)
            self._backoffs.pop(known.key, None)
        if record is not None:
            self._records[record.key] = record
            self.metrics.observe(record)
            if record.problem and (known is None or known.problem != record.problem):
                namespace, name = record.key
                log.warning("rollout %s: %s", name, record.problem, extra={"namespace": namespace})

    async def run(self) -> None:
        """Step until cancelled."""
        while True:
            self._wakeup.clear()
            try:
                await self.step()
            except Exception:
                log.exception("the rollouts were not driven; the next step tries again")
                await asyncio.sleep(_TICK_SECONDS)
            wait_seconds = _TICK_SECONDS if any(each.is_active for each in self._records.values()) else None
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_seconds):
                    await self._wakeup.wait()
                    await asyncio.sleep(_GATHER_SECONDS)

    def raise_pools(self) -> None:
        """Raise the pools as the stored stages need it, without measures and without a write."""
        warm = self.pools.count_warm()
        steps = [(record, self._advance(record, warm, NO_RECORDS)) for record in self._find_active()]
        self.pools.require_warm(_join_needs(steps))

    async def step(self) -> None:
        """Compute the next status of each rollout, raise the pools, then write what has changed."""
        warm, active = self.pools.count_warm(), self._find_active()
        measures = await asyncio.gather(*(self._measure(record) for record in active))
        steps = [(record, self._advance(record, warm, found)) for record, found in zip(active, measures, strict=True)]
        self.pools.require_warm(_join_needs(steps))
        await asyncio.gather(*(self._write(record, found.status) for record, found in steps if found is not None))

    def _find_active(self) -> list[RolloutRecord]:
        closed = self.pools.closed
        return [record for record in self._records.values() if record.is_active and record.key[0] not in closed]

    async def _measure(self, record: RolloutRecord) -> RolloutMeasures:
        if record.spec is None:
            return NO_RECORDS
        namespace, name = record.key
        try:
            async with self._slots:
                identity = RolloutIdentity(namespace=namespace, name=name, uid=record.uid)
                measures = await self.measures.get(identity, record.spec)
        except Exception as error:  # it must not stop other rollouts
            log.exception("the outcomes of rollout %s were not read", name, extra={"namespace": namespace})
            measures = RolloutMeasures(problem=f"the outcomes were not read: {type(error).__name__}")
        return add_pool_measures(measures, record.spec, self.pools.list_health(namespace), now=monotonic())

    def _advance(
        self, record: RolloutRecord, warm: Mapping[ObjectKey, int], measures: RolloutMeasures
    ) -> RolloutProgress | None:
        """Return the next status. None after an error, which must not stop other rollouts."""
        namespace, name = record.key
        if record.status is None:
            return None
        if record.spec is None:
            return refuse(record.status, record.problem, now=self.clock(), generation=record.generation)
        own = {pool: count for (place, pool), count in warm.items() if place == namespace}
        try:
            return advance(
                record.spec, record.status, measures, warm=own, now=self.clock(), generation=record.generation
            )
        except Exception:
            log.exception("rollout %s was not driven", name, extra={"namespace": namespace})
            return None

    async def _write(self, record: RolloutRecord, status: ExecutionRolloutStatus) -> None:
        """Write a status that has changed. What fails is computed again by the next step."""
        before, after = record.status, build_status(status)
        backoff = self._backoffs.get(record.key)
        if before is None or after == build_status(before) or (backoff and monotonic() < backoff.until):
            return
        try:
            written = await self.api.replace_status(
                "ExecutionRollout", *record.key, version=record.version, status=after, what="rollout-status"
            )
        except ApiError as error:
            await self._recover(record, error)
            return
        self._backoffs.pop(record.key, None)
        known = self._records.get(record.key)
        if known is not None and known.uid == record.uid:  # else it was deleted meanwhile
            self._take(written, deleted=False)
        for event in build_events(record, before, status, moment=self.clock()):
            try:
                await self.api.create_event(event)
            except ApiError as error:
                log.warning("no Event for rollout %s: %s", record.key[1], error, extra={"namespace": record.key[0]})

    async def _recover(self, record: RolloutRecord, error: ApiError) -> None:
        """Read a rollout whose status was not written, since a watch may be late."""
        if error.code != 409:
            self._backoffs.setdefault(record.key, Backoff()).fail(monotonic())
            log.warning("the status of rollout %s was not written: %s", record.key[1], error)
        try:
            body = await self.api.get("ExecutionRollout", *record.key)
        except ApiError as failure:
            log.warning("rollout %s can't be read: %s", record.key[1], failure)
            return
        gone: Object = {"metadata": {"namespace": record.key[0], "name": record.key[1]}}
        self._take(body or gone, deleted=body is None)


def _join_needs(steps: list[tuple[RolloutRecord, RolloutProgress | None]]) -> dict[ObjectKey, int]:
    """Return the warm pods that each pool needs for all its rollouts."""
    needs: dict[ObjectKey, int] = {}
    for record, progress in steps:
        for pool, count in (progress.warm if progress is not None else {}).items():
            key = (record.key[0], pool)
            needs[key] = max(needs.get(key, 0), count)
    return needs
