"""Sums over the records: what models, sandboxes and tools used by group, and what the arms of a rollout measured.

A unit of a rollout is one sample of each value, however many outcomes it has in the window: of its share of failures,
of its means, and of its newest latency. Outcomes of one unit are not independent of each other.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Float, RowMapping, Select, Table, and_, case, cast, func, literal, not_, select

from mcp_exec_api.wire.rollouts import MAX_MEASURED_ARMS, MeasuredArm, MeasuredInterval, MeasuredRollout
from mcp_exec_api.wire.usage import UsageGrouping
from mcp_exec_broker.features.records.habits import count_combinations, count_conversations, limit_rows
from mcp_exec_broker.features.records.store import RecordStore, RecordsUnavailable
from mcp_exec_broker.features.records.tables import CALLS, EXECUTIONS, EXPOSURES, KEY_USES, MODEL_USAGE, OUTCOMES
from mcp_exec_common.broker.records import MAX_RECORDS
from mcp_exec_common.rollouts.guards import Interval, mean_interval, quantile_interval, share_interval
from mcp_exec_common.usage import (
    MAX_USAGE_ROWS,
    MeasuredCalls,
    MeasuredCombination,
    MeasuredExecutions,
    MeasuredTokens,
    MeasuredUsage,
)

_QUANTILE: Final = 0.95
_MAX_LATENCIES: Final = 10_000
"""Units of an arm in the percentile: those with the newest latencies."""
_MEANS: Final = ("cost", "tokens", "rating")
_USAGE_SECONDS: Final = 20.0
_DAY: Final = 24 * 3600 * 1_000_000
_GIB: Final = 2**30
_Sums = Select[Any]


async def find_last_uses(store: RecordStore, *, namespace: str, caller: str | None) -> dict[str, int]:
    """Return the hour of the last use of each API key, by its name. Raises RecordsUnavailable."""
    columns = KEY_USES.c
    last = select(columns.caller, func.max(columns.at).label("at")).where(columns.namespace == namespace)
    if caller is not None:
        last = last.where(columns.caller == caller)
    async with store.read() as connection:
        found = await connection.execute(last.group_by(columns.caller).order_by(columns.caller).limit(MAX_RECORDS))
        return {row.caller: row.at for row in found}


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


async def measure_usage(
    store: RecordStore, *, namespace: str, caller: str | None = None, by: UsageGrouping, since: int, until: int
) -> MeasuredUsage:
    """Return the sums of a namespace or of one of its callers in a time in microseconds, `until` excluded.

    Raises RecordsUnavailable.
    """
    selects = {
        "tokens": (MODEL_USAGE, _select_tokens(by)),
        "executions": (EXECUTIONS, _select_executions(by)),
        "pools": (EXECUTIONS, _select_pools(by)),
        "calls": (CALLS, _select_calls(by)),
    }
    limits: dict[str, Any] = {"namespace": namespace, "caller": caller, "since": since, "until": until}
    found: dict[str, list[RowMapping]] = {}
    combinations: list[MeasuredCombination] = []
    has_all_combinations = True
    try:
        async with asyncio.timeout(_USAGE_SECONDS), store.read() as connection:
            for name, (table, query) in selects.items():
                found[name] = []
                if query is not None:
                    limited = query.where(limit_rows(table, **limits)).limit(MAX_USAGE_ROWS + 1)
                    found[name] = list((await connection.execute(limited)).mappings().all())
            conversations = await count_conversations(connection, **limits)
            if by == "tool":
                combinations, has_all_combinations = await count_combinations(connection, **limits)
    except TimeoutError as error:
        raise RecordsUnavailable(f"the sums took more than {_USAGE_SECONDS:g} s: ask for a shorter time") from error
    pools: dict[str, dict[str, float]] = {}
    for row in found["pools"][:MAX_USAGE_ROWS]:
        pools.setdefault(_write_key(row["key"], by), {})[row["pool"]] = float(row["sandbox_seconds"])
    executions = [_read(row, by) for row in found["executions"][:MAX_USAGE_ROWS]]
    is_complete = has_all_combinations and all(len(rows) <= MAX_USAGE_ROWS for rows in found.values())
    return MeasuredUsage(
        tokens=[MeasuredTokens(**_read(row, by)) for row in found["tokens"][:MAX_USAGE_ROWS]],
        executions=[MeasuredExecutions(**each, pool_seconds=pools.get(each["key"], {})) for each in executions],
        calls=[MeasuredCalls(**_read(row, by)) for row in found["calls"][:MAX_USAGE_ROWS]],
        conversations=conversations,
        combinations=combinations,
        is_complete=is_complete,
    )


def _select_tokens(by: UsageGrouping) -> _Sums | None:
    if by == "tool":
        return None  # a model's tokens belong to a task, not to a tool
    columns = MODEL_USAGE.c
    key = columns.model if by == "model" else _group(MODEL_USAGE, columns.at, by)
    total = _sum(columns.input_tokens + columns.output_tokens)
    return (
        select(
            key.label("key"),
            columns.mode,
            columns.model,
            columns.counted,
            func.count().label("reports"),
            *(
                _sum(columns[name]).label(name)
                for name in (
                    "turns", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens",
                    "definition_tokens", "latency_ms",
                )
            ),
            func.sum(case((columns.success.is_(True), 1), else_=0)).label("succeeded"),
            func.sum(case((columns.success.is_(False), 1), else_=0)).label("failed"),
            func.count(columns.latency_ms).label("timed"),
        )
        .group_by(key, columns.mode, columns.model, columns.counted)
        .order_by(total.desc(), key)
    )  # fmt: skip


def _select_executions(by: UsageGrouping) -> _Sums | None:
    if by in ("tool", "model"):
        return None
    columns = EXECUTIONS.c
    key = _group(EXECUTIONS, columns.created_at, by)
    is_counted = and_(columns.tool_calls > 0, columns.tokens_kept.is_not(None), columns.tokens_code.is_not(None))
    saving = columns.tokens_kept - columns.tokens_code
    has_figures = and_(columns.cpu_seconds.is_not(None), columns.peak_memory_bytes.is_not(None))
    held = cast(columns.peak_memory_bytes, Float) / literal(_GIB) * columns.sandbox_seconds
    return (
        select(
            key.label("key"),
            func.count().label("executions"),
            func.sum(case((columns.phase == "Succeeded", 0), else_=1)).label("failed"),
            _sum(columns.sandbox_seconds).label("sandbox_seconds"),
            _sum(columns.cpu_seconds).label("cpu_seconds"),
            _sum(case((has_figures, held))).label("gib_seconds"),
            func.sum(case((and_(columns.sandbox_seconds > 0, not_(has_figures)), 1), else_=0)).label("unmeasured"),
            func.sum(case((is_counted, 1), else_=0)).label("with_calls"),
            *(
                _sum(case((is_counted, columns[column]), else_=0)).label(name)
                for column, name in (
                    ("tool_calls", "calls"),
                    ("tokens_code", "tokens_code"),
                    ("tokens_returned", "tokens_returned"),
                    ("tokens_kept", "tokens_kept"),
                )
            ),
            _sum(case((and_(is_counted, saving > 0), saving), else_=0)).label("tokens_saved"),
            _sum(case((and_(is_counted, saving < 0), -saving), else_=0)).label("tokens_lost"),
        )
        .group_by(key)
        .order_by(func.count().desc(), key)
    )


def _select_pools(by: UsageGrouping) -> _Sums | None:
    if by in ("tool", "model"):
        return None
    columns = EXECUTIONS.c
    key, seconds = _group(EXECUTIONS, columns.created_at, by), _sum(columns.sandbox_seconds)
    return (
        select(key.label("key"), columns.pool, seconds.label("sandbox_seconds"))
        .where(columns.pool.is_not(None), columns.sandbox_seconds.is_not(None))
        .group_by(key, columns.pool)
        .order_by(seconds.desc(), key)
    )


def _select_calls(by: UsageGrouping) -> _Sums | None:
    if by == "model":
        return None
    columns, source = CALLS.c, CALLS.outerjoin(EXECUTIONS, CALLS.c.execution_uid == EXECUTIONS.c.uid)
    if by == "tool":
        key: ColumnElement[Any] = columns.server + literal(".") + columns.tool
    elif by == "use-case":
        key = func.coalesce(columns.use_case, EXECUTIONS.c.use_case)  # calls of code have that of their execution
    elif by == "arm":
        key = func.coalesce(_name_arm(CALLS), _name_arm(EXECUTIONS))
    else:
        key = _group(CALLS, columns.started_at, by)
    is_ok = columns.outcome == "ok"
    return (
        select(
            key.label("key"),
            columns.mode,
            _sum(columns.calls).label("calls"),
            _sum(case((is_ok, 0), else_=columns.calls)).label("failed"),
            _sum(columns.argument_bytes).label("argument_bytes"),
            _sum(columns.result_bytes).label("result_bytes"),
        )
        .select_from(source)
        .group_by(key, columns.mode)
        .order_by(_sum(columns.calls).desc(), key)
    )


def _sum(value: ColumnElement[Any]) -> ColumnElement[float]:
    """Return a sum without end: SQLite refuses one of integers beyond 64 bits, and with it all groups."""
    return func.sum(cast(value, Float))


def _group(table: Table, time: ColumnElement[int], by: UsageGrouping) -> ColumnElement[Any]:
    match by:
        case "caller":
            return table.c.caller
        case "use-case":
            return table.c.use_case
        case "arm":
            return _name_arm(table)
        case _:
            return time // literal(_DAY)


def _name_arm(table: Table) -> ColumnElement[Any]:
    return table.c.rollout + literal("/") + table.c.arm


def _read(row: RowMapping, by: UsageGrouping) -> dict[str, Any]:
    """Return the values of a model: sums of nothing are 0, and PostgreSQL's sums of integers are decimals."""
    values = dict(row)
    key = values.pop("key")
    for name, value in values.items():
        if name == "gib_seconds":
            values[name] = None if value is None else float(value)
        elif name in ("sandbox_seconds", "cpu_seconds"):
            values[name] = float(value or 0.0)
        elif name not in ("mode", "model", "counted"):
            values[name] = int(value or 0)
        else:
            values[name] = value or ""
    return {**values, "key": _write_key(key, by)}


def _write_key(key: object, by: UsageGrouping) -> str:
    if by == "day" and isinstance(key, int):
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=key)).date().isoformat()
    return "" if key is None else str(key)
