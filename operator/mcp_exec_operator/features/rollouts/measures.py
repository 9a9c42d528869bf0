"""Measures of rollouts' arms: outcomes from the broker's records, and how the pods of their pools start and run."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Final, Protocol

from mcp_exec_api.execution_rollout import ExecutionRolloutSpec
from mcp_exec_api.rollout_status import ArmMeasures, GuardMetric, RolloutGuard
from mcp_exec_api.wire.rollouts import MeasuredArm, MeasuredInterval, MeasuredRollout
from mcp_exec_common.broker.client import BrokerError
from mcp_exec_common.rollouts.guards import ArmIntervals, Interval, share_interval
from mcp_exec_common.rollouts.progress import RolloutMeasures
from mcp_exec_operator.core.pools.health import PoolHealth

log = logging.getLogger(__name__)

_FRESH_SECONDS: Final = 10.0
"""Highest age of measures that are used again."""
_STALE_SECONDS: Final = 60.0
"""Highest age of measures that are used if newer ones cannot be read: a restart of the broker stops no rollout."""
_READ_SECONDS: Final = 5.0
"""Longest wait for the records."""
NO_RECORDS: Final = RolloutMeasures(problem="the operator reads no records, so that guards have no samples")


@dataclass(frozen=True, kw_only=True)
class RolloutIdentity:
    """The rollout whose outcomes are read. One that was created again has another uid."""

    namespace: str
    name: str
    uid: str


class RecordsUnreadable(Exception):
    """The records cannot be read; the message says why."""


class MeasuresReader(Protocol):
    """Source of what the arms of a rollout measured: the broker's records."""

    async def read(self, rollout: RolloutIdentity, spec: ExecutionRolloutSpec) -> RolloutMeasures:
        """Return the measures of all guards in their windows, and of all arms. Raises RecordsUnreadable."""


@dataclass(frozen=True, kw_only=True)
class _Reading:
    measures: RolloutMeasures
    read_at: float
    """Time of the last success, by the monotonic clock."""
    tried_at: float


@dataclass(kw_only=True, eq=False)
class MeasuresCache:
    """Measures of each rollout that were read last."""

    reader: MeasuresReader | None = None
    """None if there are no records: then no guard has samples."""
    clock: Callable[[], float] = monotonic
    _readings: dict[str, _Reading] = field(default_factory=dict)
    """By uid."""

    async def get(self, rollout: RolloutIdentity, spec: ExecutionRolloutSpec) -> RolloutMeasures:
        """Return the measures of a rollout, or measures with the problem if they cannot be read."""
        if self.reader is None:
            return NO_RECORDS
        now, last = self.clock(), self._readings.get(rollout.uid)
        if last is not None and now - last.tried_at < _FRESH_SECONDS:
            return last.measures
        try:
            async with asyncio.timeout(_READ_SECONDS):
                measures = await self.reader.read(rollout, spec)
        except (RecordsUnreadable, TimeoutError) as error:
            problem = str(error) or f"the records were not read within {_READ_SECONDS:.0f} s"
            log.warning("rollout %s: %s", rollout.name, problem, extra={"namespace": rollout.namespace})
            if last is not None and now - last.read_at < _STALE_SECONDS:
                self._readings[rollout.uid] = replace(last, tried_at=now)
                return last.measures
            measures = RolloutMeasures(problem=problem)
            self._readings[rollout.uid] = _Reading(measures=measures, read_at=float("-inf"), tried_at=now)
            return measures
        self._readings[rollout.uid] = _Reading(measures=measures, read_at=now, tried_at=now)
        return measures

    def forget(self, uid: str) -> None:
        """Drop the measures of a rollout that was deleted."""
        self._readings.pop(uid, None)


def add_pool_measures(
    measures: RolloutMeasures, spec: ExecutionRolloutSpec, healths: Mapping[str, PoolHealth], *, now: float
) -> RolloutMeasures:
    """Return the measures with those of the arms' pools. `healths` are by pool; one that is missing has no measures."""
    found: dict[str, Mapping[str, ArmIntervals]] = dict(measures.guards)
    for guard in spec.guards:
        arms: dict[str, ArmIntervals] = {}
        for arm in spec.arms:
            health = healths.get(arm.pool) if arm.pool is not None else None
            if health is not None and (interval := _measure(guard, health, now)) is not None:
                arms[arm.name] = {guard.metric: interval}
        if arms:
            found[guard.name] = arms
    return replace(measures, guards=found)


def _measure(guard: RolloutGuard, health: PoolHealth, now: float) -> Interval | None:
    """Return what a guard measures of a pool, or None if it has no runs or the guard measures outcomes."""
    if guard.metric is GuardMetric.START_FAILURES:
        # a count and no estimate: its interval is a point
        count = float(health.failures)
        return Interval(value=count, low=count, high=count, samples=health.failures)
    if guard.metric is GuardMetric.FAULT_RATE:
        runs, faults = health.count_runs(since=now - guard.window_seconds)
        return share_interval(faults, runs)
    return None


class RolloutRecords(Protocol):
    """The records, as far as rollouts need them."""

    async def measure_rollout(
        self, *, namespace: str, uid: str, window_seconds: float | None = None
    ) -> MeasuredRollout:
        """Return what the arms measured in the last seconds, or since the beginning. Raises BrokerError."""


@dataclass(frozen=True, kw_only=True)
class RecordsReader:
    """Asks once for each window that guards have, and once for all outcomes."""

    records: RolloutRecords

    async def read(self, rollout: RolloutIdentity, spec: ExecutionRolloutSpec) -> RolloutMeasures:
        """Return the measures of all guards in their windows, and of all arms. Raises RecordsUnreadable."""
        windows: dict[float | None, MeasuredRollout] = {}
        try:
            for window in {None, *(guard.window_seconds for guard in spec.guards)}:
                windows[window] = await self.records.measure_rollout(
                    namespace=rollout.namespace, uid=rollout.uid, window_seconds=window
                )
        except BrokerError as error:
            raise RecordsUnreadable(f"the records cannot be read: {error}") from error
        names = {arm.name for arm in spec.arms}
        return RolloutMeasures(
            guards={
                guard.name: {arm.name: _read_intervals(arm) for arm in windows[guard.window_seconds].arms}
                for guard in spec.guards
            },
            arms=[_summarize(arm) for arm in windows[None].arms if arm.name in names],
        )


def _read_intervals(arm: MeasuredArm) -> ArmIntervals:
    found = {
        GuardMetric.ERROR_RATE: arm.error_rate,
        GuardMetric.P95_LATENCY_MS: arm.p95_latency_ms,
        GuardMetric.COST_PER_CONVERSATION: arm.cost,
        GuardMetric.RATING: arm.rating,
    }
    return {metric: Interval.from_measured(interval) for metric, interval in found.items() if interval is not None}


def _summarize(arm: MeasuredArm) -> ArmMeasures:
    return ArmMeasures(
        name=arm.name,
        exposed=arm.units,
        outcomes=arm.outcomes,
        failures=arm.failures,
        error_rate=_value(arm.error_rate),
        p95_latency_ms=_value(arm.p95_latency_ms),
        cost_per_conversation=_value(arm.cost),
        rating=_value(arm.rating),
    )


def _value(interval: MeasuredInterval | None) -> float | None:
    return None if interval is None else interval.value
