"""Shares of namespaces in an SQLite file of records.

Triggers keep the bytes and rows of each namespace and table in the statement that stores or deletes a row, so that they
are right after a crash. A full file loses the oldest rows of the namespace that uses most, whoever filled it last.
"""

from typing import Final

from sqlalchemy import Column, ColumnElement, Delete, Integer, MetaData, String, Table, delete, func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from mcp_exec_broker.records.tables import RECORD_TABLES

DELETED_AT_ONCE: Final = 500
"""Rows of a transaction that deletes, between which others write."""
_ROW_BYTES: Final = 300
"""Bytes of a row and its index entries without its texts, roughly."""
_KEY_COPIES: Final = 3
"""A text of the primary key is in the row, in the index of the key and in that of the time of storage."""

_SIZES: Final = Table(
    "record_sizes",
    MetaData(),  # of its own: PostgreSQL has no such table
    Column("namespace", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("stored_bytes", Integer, nullable=False),
    Column("stored_rows", Integer, nullable=False),
)


async def create_sizes(connection: AsyncConnection) -> None:
    """Create the sizes, the triggers that keep them, and indexes by namespace. Measures rows of an earlier release."""
    await connection.run_sync(_SIZES.create, checkfirst=True)
    for statement in [_measure_all(), *map(_build_index, RECORD_TABLES.values()), *_build_triggers()]:
        await connection.exec_driver_sql(statement)


async def delete_from_largest(connection: AsyncConnection, *, excess: int) -> int:
    """Delete the oldest rows of the namespace that uses most, of about `excess` bytes; return their number.

    At most DELETED_AT_ONCE rows of one table are deleted, so that the namespace may be another one afterwards.
    """
    columns = _SIZES.c
    total = func.sum(columns.stored_bytes)
    largest = select(columns.namespace).group_by(columns.namespace).order_by(total.desc()).limit(1)
    namespace = (await connection.execute(largest)).scalar()
    sizes = _SIZES.select().where(columns.namespace == namespace, columns.stored_rows > 0)
    oldest: tuple[int, Table, int] | None = None
    for size in (await connection.execute(sizes)).mappings().all():
        table = RECORD_TABLES[size["name"]]
        query = select(func.min(table.c.stored_at)).where(table.c.namespace == namespace)
        stored_at = (await connection.execute(query)).scalar()
        if stored_at is not None and (oldest is None or stored_at < oldest[0]):
            oldest = stored_at, table, max(1, size["stored_bytes"] // size["stored_rows"])
    if oldest is None:
        return 0
    _, table, row_bytes = oldest
    count = min(-(-excess // row_bytes), DELETED_AT_ONCE)
    return (await connection.execute(delete_oldest_rows(table, table.c.namespace == namespace, count=count))).rowcount


def delete_oldest_rows(table: Table, condition: ColumnElement[bool], *, count: int = DELETED_AT_ONCE) -> Delete:
    """Return a statement that deletes the oldest of the rows that meet a condition."""
    keys = list(table.primary_key.columns)
    oldest = select(*keys).where(condition).order_by(table.c.stored_at).limit(count)
    return delete(table).where(tuple_(*keys).in_(oldest))


def _measure_all() -> str:
    """Return one statement for all sizes, so that a crash leaves all of them or none."""
    sizes = " UNION ALL ".join(
        f"SELECT namespace, '{name}', sum({_weigh(table)}), count(*) FROM {name} GROUP BY namespace"
        for name, table in RECORD_TABLES.items()
    )
    return f"INSERT INTO record_sizes SELECT * FROM ({sizes}) WHERE NOT EXISTS (SELECT 1 FROM record_sizes)"


def _build_index(table: Table) -> str:
    return f"CREATE INDEX IF NOT EXISTS {table.name}_share ON {table.name} (namespace, stored_at)"


def _build_triggers() -> list[str]:
    """Return the triggers. They have no conflict clause: that of the statement that fires them would replace it."""
    triggers = []
    for name, table in RECORD_TABLES.items():
        added, removed = (_weigh(table, f"{row}.") for row in ("NEW", "OLD"))
        triggers += [
            f"CREATE TRIGGER IF NOT EXISTS {name}_added AFTER INSERT ON {name} BEGIN "
            f"INSERT INTO record_sizes SELECT NEW.namespace, '{name}', 0, 0 WHERE NOT EXISTS "
            f"(SELECT 1 FROM record_sizes WHERE namespace = NEW.namespace AND name = '{name}'); "
            f"UPDATE record_sizes SET stored_bytes = stored_bytes + {added}, stored_rows = stored_rows + 1 "
            f"WHERE namespace = NEW.namespace AND name = '{name}'; END",
            f"CREATE TRIGGER IF NOT EXISTS {name}_removed AFTER DELETE ON {name} BEGIN "
            f"UPDATE record_sizes SET stored_bytes = stored_bytes - ({removed}), stored_rows = stored_rows - 1 "
            f"WHERE namespace = OLD.namespace AND name = '{name}'; END",
        ]
    return triggers


def _weigh(table: Table, prefix: str = "") -> str:
    """Return an expression for the bytes of a row."""
    terms = [str(_ROW_BYTES)]
    for column in table.columns:
        if isinstance(column.type, String):
            size = f'ifnull(length(CAST({prefix}"{column.name}" AS BLOB)), 0)'
            terms.append(f"{_KEY_COPIES} * {size}" if column.primary_key else size)
    return " + ".join(terms)
