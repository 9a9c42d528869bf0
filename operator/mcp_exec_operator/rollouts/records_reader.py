"""Reader of what arms measured, from the broker's records."""

from dataclasses import dataclass
from typing import Protocol

from mcp_exec_api.execution_rollout import ExecutionRolloutSpec
from mcp_exec_api.rollout_status import ArmMeasures, GuardMetric
from mcp_exec_api.wire.rollouts import MeasuredArm, MeasuredInterval, MeasuredRollout
from mcp_exec_common.broker.client import BrokerError
from mcp_exec_common.rollouts.guards import ArmIntervals
from mcp_exec_common.rollouts.intervals import Interval
from mcp_exec_common.rollouts.progress import RolloutMeasures
from mcp_exec_operator.rollouts.measures import RecordsUnreadable, RolloutIdentity


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
