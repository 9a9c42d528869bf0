"""What the arms of a rollout measured, from its outcomes."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Float, RowMapping, Select, case, cast, distinct, func, select

from mcp_exec_broker.records.store import RecordStore
from mcp_exec_broker.records.tables import EXPOSURES, OUTCOMES
from mcp_exec_common.broker.rollout_measures import MAX_MEASURED_ARMS, MeasuredArm, MeasuredInterval, MeasuredRollout
from mcp_exec_common.rollouts.intervals import Interval, mean_interval, quantile_interval, share_interval

_QUANTILE: Final = 0.95
_MAX_LATENCIES: Final = 10_000
"""Newest outcomes of an arm of which the percentile is computed."""
_MEANS: Final = ("cost", "tokens", "rating")


async def measure_rollout(store: RecordStore, *, namespace: str, uid: str, since: int) -> MeasuredRollout:
    """Return what the arms measured since a time in microseconds. Raises RecordsUnavailable."""
    conditions = (OUTCOMES.c.namespace == namespace, OUTCOMES.c.rollout_uid == uid, OUTCOMES.c.at >= since)
    async with store.read() as connection:
        rows = (await connection.execute(_select_sums().where(*conditions))).mappings().all()
        latencies = {
            row["arm"]: (await connection.execute(_select_latencies(row["arm"]).where(*conditions))).scalars().all()
            for row in rows
        }
        counts = (await connection.execute(_count_exposed(namespace, uid, since))).mappings().all()
    arms = {row["arm"]: _build_arm(row, latencies[row["arm"]]) for row in rows}
    for row in counts:
        arm = arms.get(row["arm"], MeasuredArm(name=row["arm"]))
        arms[arm.name] = arm.model_copy(update={"exposed": row["exposed"]})
    return MeasuredRollout(arms=[arms[name] for name in sorted(arms)][:MAX_MEASURED_ARMS])


def _count_exposed(namespace: str, uid: str, since: int) -> Select[Any]:
    columns = EXPOSURES.c
    conditions = (columns.namespace == namespace, columns.rollout_uid == uid, columns.at >= since)
    return (
        select(columns.arm, func.count().label("exposed"))
        .where(*conditions)
        .group_by(columns.arm)
        .limit(MAX_MEASURED_ARMS)
    )


def _select_sums() -> Select[Any]:
    columns = OUTCOMES.c
    sums: list[Any] = []
    for name in _MEANS:
        value = cast(columns[name], Float(53))  # squares of tokens exceed 64 bits
        sums += [
            func.count(columns[name]).label(f"{name}_samples"),
            func.sum(value).label(f"{name}_total"),
            func.sum(value * value).label(f"{name}_squares"),
        ]
    return (
        select(
            columns.arm,
            func.count().label("outcomes"),
            func.count(distinct(columns.unit)).label("units"),
            func.count(columns.success).label("known"),
            func.sum(case((columns.success.is_(False), 1), else_=0)).label("failures"),
            *sums,
        )
        .group_by(columns.arm)
        .order_by(columns.arm)
        .limit(MAX_MEASURED_ARMS)
    )


def _select_latencies(arm: str) -> Select[Any]:
    columns = OUTCOMES.c
    return (
        select(columns.latency_ms)
        .where(columns.arm == arm, columns.latency_ms.is_not(None))
        .order_by(columns.at.desc())
        .limit(_MAX_LATENCIES)
    )


def _build_arm(values: RowMapping, latencies: Sequence[int]) -> MeasuredArm:
    means = {
        name: _convert(
            mean_interval(
                values[f"{name}_samples"],
                float(values[f"{name}_total"] or 0.0),
                float(values[f"{name}_squares"] or 0.0),
            )
        )
        for name in _MEANS
    }
    return MeasuredArm(
        name=values["arm"],
        units=values["units"],
        outcomes=values["outcomes"],
        failures=int(values["failures"] or 0),
        error_rate=_convert(share_interval(int(values["failures"] or 0), values["known"])),
        p95_latency_ms=_convert(quantile_interval(list(latencies), _QUANTILE)),
        **means,
    )


def _convert(interval: Interval | None) -> MeasuredInterval | None:
    return None if interval is None else MeasuredInterval.from_interval(interval)
