"""How code is used: conversations with and without it, and tools that executions call together."""

from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, Table, and_, case, func, literal, select, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from mcp_exec_api.wire.usage import MAX_COMBINATIONS
from mcp_exec_broker.features.records.tables import CALLS, EXECUTIONS, MODEL_USAGE
from mcp_exec_common.usage import MeasuredCombination, MeasuredConversations

MAX_CALLED: Final = 50_000
"""Tools of executions that are read for combinations, those of the same executions together."""
_MAX_TOOLS: Final = 8
"""Tools of a combination; an execution that calls more counts as one of the first ones by name."""
TIMES: Final[dict[Table, ColumnElement[int]]] = {
    MODEL_USAGE: MODEL_USAGE.c.at,
    EXECUTIONS: EXECUTIONS.c.created_at,
    CALLS: CALLS.c.started_at,
}
"""Tables of usage, each with the time that limits its rows."""


def limit_rows(table: Table, *, namespace: str, caller: str | None, since: int, until: int) -> ColumnElement[bool]:
    """Return the condition of a table's rows of a namespace, or of one of its callers, in a time."""
    time = TIMES[table]
    limits = and_(table.c.namespace == namespace, time >= since, time < until)
    return limits if caller is None else and_(limits, table.c.caller == caller)


async def count_conversations(connection: AsyncConnection, **limits: Any) -> MeasuredConversations:
    """Return the number of conversations that executions, direct calls or reports name, and of those that ran code."""
    found = [
        select(table.c.conversation.label("conversation"), ran.label("ran_code")).where(
            limit_rows(table, **limits), table.c.conversation.is_not(None)
        )
        for table, ran in (
            (EXECUTIONS, literal(1)),
            (CALLS, case((CALLS.c.mode == "code", 1), else_=0)),
            (MODEL_USAGE, literal(0)),
        )
    ]
    named = union_all(*found).subquery()
    each = (
        select(named.c.conversation, func.max(named.c.ran_code).label("ran_code"))
        .group_by(named.c.conversation)
        .subquery()
    )
    query = select(func.count().label("total"), func.coalesce(func.sum(each.c.ran_code), 0).label("with_code"))
    row = (await connection.execute(query.select_from(each))).mappings().one()
    return MeasuredConversations(total=int(row["total"]), with_code=int(row["with_code"]))


async def count_combinations(connection: AsyncConnection, **limits: Any) -> tuple[list[MeasuredCombination], bool]:
    """Return the most frequent sets of two tools or more that executions called, and whether all rows were read."""
    rows = (await connection.execute(_select_called(**limits))).all()
    found = Counter(_list_sets((str(uid), f"{server}.{tool}") for uid, server, tool in rows[:MAX_CALLED]))
    ordered = sorted(found.items(), key=lambda each: (-each[1], each[0]))[:MAX_COMBINATIONS]
    combinations = [MeasuredCombination(tools=list(tools), executions=count) for tools, count in ordered]
    return combinations, len(rows) <= MAX_CALLED


def _select_called(**limits: Any) -> Select[Any]:
    columns = CALLS.c
    return (
        select(columns.execution_uid, columns.server, columns.tool)
        .where(limit_rows(CALLS, **limits), columns.execution_uid.is_not(None), columns.mode == "code")
        .distinct()
        .order_by(columns.execution_uid, columns.server, columns.tool)
        .limit(MAX_CALLED + 1)
    )


def _list_sets(called: Iterable[tuple[str, str]]) -> Iterable[tuple[str, ...]]:
    for _, rows in groupby(called, key=lambda row: row[0]):
        tools = tuple(tool for _, tool in rows)[:_MAX_TOOLS]
        if len(tools) > 1:
            yield tools
