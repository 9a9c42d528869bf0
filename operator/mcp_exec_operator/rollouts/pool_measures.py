"""What the guards of a rollout measure of the arms' pools: how their pods start and how their runs end. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from mcp_exec_api.execution_rollout import ExecutionRolloutSpec
from mcp_exec_api.rollout_status import GuardMetric, RolloutGuard
from mcp_exec_common.rollouts.guards import ArmIntervals
from mcp_exec_common.rollouts.intervals import Interval, share_interval
from mcp_exec_common.rollouts.progress import RolloutMeasures
from mcp_exec_operator.pools.health import PoolHealth


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
