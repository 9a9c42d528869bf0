"""What the arms of a rollout measured, from its outcomes.

A unit is one sample of each value, however many outcomes it has in the window: of its share of failures, of its means,
and of its newest latency. Units are what a rollout divides, and outcomes of one are not independent of each other.
"""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Float, RowMapping, Select, case, cast, func, select

from mcp_exec_api.wire.rollouts import MAX_MEASURED_ARMS, MeasuredArm, MeasuredInterval, MeasuredRollout
from mcp_exec_broker.records.store import RecordStore
from mcp_exec_broker.records.tables import EXPOSURES, OUTCOMES
from mcp_exec_common.rollouts.intervals import Interval, mean_interval, quantile_interval, share_interval

_QUANTILE: Final = 0.95
_MAX_LATENCIES: Final = 10_000
"""Units of an arm in the percentile: those with the newest latencies."""
_MEANS: Final = ("cost", "tokens", "rating")


async def measure_rollout(store: RecordStore, *, namespace: str, uid: str, since: int) -> MeasuredRollout:
    """Return what the arms measured since a time in microseconds. Raises RecordsUnavailable."""
    conditions = (OUTCOMES.c.namespace == namespace, OUTCOMES.c.rollout_uid == uid, OUTCOMES.c.at >= since)
    async with store.read() as connection:
        rows = (await connection.execute(_select_sums(*conditions))).mappings().all()
        latencies = {
            row["arm"]: (await connection.execute(_select_latencies(row["arm"], *conditions))).scalars().all()
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


def _select_sums(*conditions: ColumnElement[bool]) -> Select[Any]:
    columns = OUTCOMES.c
    failed = cast(case((columns.success.is_(False), 1), (columns.success.is_(True), 0)), Float(53))
    units = (
        select(
            columns.arm,
            func.count().label("outcomes"),
            func.sum(failed).label("failures"),
            func.avg(failed).label("error"),
            *(func.avg(cast(columns[name], Float(53))).label(name) for name in _MEANS),
        )
        .where(*conditions)
        .group_by(columns.arm, columns.unit)
        .subquery()
    )
    sums: list[Any] = []
    for name in _MEANS:
        value = units.c[name]
        sums += [
            func.count(value).label(f"{name}_samples"),
            func.sum(value).label(f"{name}_total"),
            func.sum(value * value).label(f"{name}_squares"),
        ]
    return (
        select(
            units.c.arm,
            func.sum(units.c.outcomes).label("outcomes"),
            func.count().label("units"),
            func.sum(units.c.failures).label("failures"),
            func.count(units.c.error).label("error_samples"),
            func.sum(units.c.error).label("error_total"),
            *sums,
        )
        .group_by(units.c.arm)
        .order_by(units.c.arm)
        .limit(MAX_MEASURED_ARMS)
    )


def _select_latencies(arm: str, *conditions: ColumnElement[bool]) -> Select[Any]:
    columns = OUTCOMES.c
    age = func.row_number().over(partition_by=columns.unit, order_by=(columns.at.desc(), columns.id))
    known = (
        select(columns.latency_ms, columns.at, age.label("age"))
        .where(*conditions, columns.arm == arm, columns.latency_ms.is_not(None))
        .subquery()
    )
    return select(known.c.latency_ms).where(known.c.age == 1).order_by(known.c.at.desc()).limit(_MAX_LATENCIES)


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
        outcomes=int(values["outcomes"]),
        failures=int(values["failures"] or 0),
        error_rate=_convert(_find_share(float(values["error_total"] or 0.0), values["error_samples"])),
        p95_latency_ms=_convert(quantile_interval(list(latencies), _QUANTILE)),
        **means,
    )


def _find_share(hits: float, samples: int) -> Interval | None:
    return share_interval(min(hits, samples), samples)  # rounding of a sum of parts can exceed their number


def _convert(interval: Interval | None) -> MeasuredInterval | None:
    return None if interval is None else interval.to_measured()
