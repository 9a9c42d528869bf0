"""Connections to the database of the records, SQLite or PostgreSQL, and the shares of namespaces in an SQLite file.

Triggers keep the bytes and rows of each namespace and table in the statement that stores or deletes a row, so that they
are right after a crash. A full file loses the oldest rows of the namespace that uses most, whoever filled it last.
"""

from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    URL,
    Column,
    ColumnElement,
    Connection,
    Delete,
    Integer,
    MetaData,
    String,
    Table,
    delete,
    event,
    func,
    inspect,
    make_url,
    select,
    tuple_,
)
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.schema import CreateColumn

from mcp_exec_broker.features.records.tables import RECORD_TABLES
from mcp_exec_broker.settings import Settings
from mcp_exec_common.process.company_network import CompanyNetwork

MAX_FILE_BYTES: Final = 1 << 40
"""Size of an SQLite file without a limit of its own."""
_PAGE_BYTES: Final = 4096
_CONNECTIONS: Final = 10
"""Connections: for the requests that are answered at once, and for the maintenance."""
_LOCK_SECONDS: Final = 10.0
_VERIFIED: Final = "verify-full"
"""Value of `ssl` in a URL: the certificate is of a trusted authority and names the host."""
DELETED_AT_ONCE: Final = 500
"""Rows of a transaction that deletes. Others write between two of them."""
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


def find_database(settings: Settings) -> str | Path | None:
    """Return the database that the settings name; None means no records. Raises ValueError, OSError."""
    if settings.records_file is not None and settings.records_database_file is not None:
        raise ValueError("records_file and records_database_file are set: choose one")
    if settings.records_database_file is None:
        return settings.records_file
    url = settings.records_database_file.read_text().strip()
    if not url:
        raise ValueError(f"{settings.records_database_file} is empty")
    return url


def create_engine(database: str | Path, *, max_bytes: int, network: CompanyNetwork | None = None) -> AsyncEngine:
    """Return the engine of an SQLite file, which gets at most `max_bytes` large, or of a URL of PostgreSQL.

    With `ssl=verify-full`, each connection is verified by the authorities that the network has at that time. Raises
    ValueError if the URL is of another kind.
    """
    if isinstance(database, str):
        url = make_url(database)
        if url.drivername not in ("postgresql", "postgres", "postgresql+asyncpg"):
            raise ValueError(f"records.database: the scheme is {url.drivername!r}; only postgresql:// is allowed")
        is_verified = url.query.get("ssl") == _VERIFIED
        engine = create_async_engine(
            url.set(drivername="postgresql+asyncpg").difference_update_query(["ssl"] if is_verified else []),
            pool_size=_CONNECTIONS,
            max_overflow=0,
            pool_timeout=_LOCK_SECONDS,
            pool_pre_ping=True,
            connect_args={"timeout": _LOCK_SECONDS, "command_timeout": 30},
        )
        if is_verified:
            present = network or CompanyNetwork()

            def verify(_dialect: Any, _record: object, _arguments: Any, options: dict[str, Any]) -> None:
                options["ssl"] = present.tls  # the driver would read authorities from the home of its user

            event.listen(engine.sync_engine, "do_connect", verify)
        return engine
    url = URL.create("sqlite+aiosqlite", database=str(database))
    engine = create_async_engine(
        url, pool_size=_CONNECTIONS, max_overflow=0, pool_timeout=_LOCK_SECONDS, connect_args={"timeout": _LOCK_SECONDS}
    )
    database.parent.mkdir(parents=True, exist_ok=True)

    def configure(connection: Any, _record: object) -> None:
        _configure_sqlite(connection.cursor(), max_bytes)

    event.listen(engine.sync_engine, "connect", configure)
    return engine


def _configure_sqlite(cursor: Any, max_bytes: int) -> None:
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")  # an execution is deleted once its record is stored
    cursor.execute(limit_pages(max_bytes))
    cursor.close()


def limit_pages(max_bytes: int) -> str:
    """Return the statement that limits the bytes of an SQLite file for a connection."""
    return f"PRAGMA max_page_count = {max(max_bytes // _PAGE_BYTES, 1)}"


def add_columns(connection: Connection) -> None:
    """Add the columns that the tables of an earlier release lack."""
    inspector = inspect(connection)
    for table in RECORD_TABLES.values():
        present = {each["name"] for each in inspector.get_columns(table.name)}
        for column in table.columns:
            if column.name not in present:
                definition = CreateColumn(column).compile(dialect=connection.dialect)
                connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {definition}")


async def create_sizes(connection: AsyncConnection) -> None:
    """Create the sizes, the triggers that keep them, and indexes by namespace."""
    await connection.run_sync(_SIZES.create, checkfirst=True)
    for statement in [*map(_build_index, RECORD_TABLES.values()), *_build_triggers()]:
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
