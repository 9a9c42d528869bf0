"""Store of the records: batches in, pages out, in SQLite or PostgreSQL."""

import asyncio
import base64
import json
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from sqlalchemy import Table, insert, literal, select, text, tuple_
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from mcp_exec_broker.features.records.database import (
    DELETED_AT_ONCE,
    MAX_FILE_BYTES,
    add_columns,
    create_engine,
    create_sizes,
    delete_from_largest,
    delete_oldest_rows,
)
from mcp_exec_broker.features.records.tables import (
    EXECUTIONS,
    METADATA,
    RECORD_TABLES,
    SCHEMA_VERSION,
    VERSION,
    RowRefused,
    check_row,
)
from mcp_exec_common.process.company_network import CompanyNetwork

log = logging.getLogger(__name__)

MAX_BATCH: Final = 1000
"""Maximum rows of an insert, uids of a search and rows of a page."""
_SPARE_BYTES: Final = 64 * 1024 * 1024
"""Bytes that an SQLite file may use beyond those that are kept, until rows are deleted."""
_ROWS_AT_ONCE: Final = 20
"""Rows of a page that the database hands over at once."""
_PAGE_CHARACTERS: Final = 4 * 1024 * 1024
"""Maximum characters of code, the only long column, in a page."""
_MIGRATION_LOCK: Final = 0x6D637065
"""Key of PostgreSQL's advisory lock: one replica at a time migrates."""
_MAX_CURSOR: Final = 4000
_ATTEMPTS: Final = 3
"""Times that room is made for a batch: others may fill it meanwhile."""


class RecordsUnavailable(Exception):
    """The database failed. Nothing of the batch is stored; the sender keeps it and tries later."""


class InvalidRecordCursor(ValueError):
    """A cursor that this store has not returned."""


@dataclass(kw_only=True, frozen=True)
class StoredBatch:
    """Result of a batch."""

    stored: int
    """Rows that are in the store, those included that were there before."""
    created: int | None = None
    """Rows that were not there before; None if the database does not say."""
    refused: list[str] = field(default_factory=list)
    """Why rows were refused, in their order."""


@dataclass(kw_only=True, frozen=True)
class RecordPage:
    """Rows of a table in the order of their storage, and the cursor of the next page."""

    rows: list[dict[str, Any]]
    cursor: str
    is_last: bool
    """Whether nothing more was stored when the page was read."""


@dataclass(kw_only=True, eq=False)
class RecordStore:
    """Records in a database. A batch is stored as a whole, without its refused rows, or not at all."""

    engine: AsyncEngine
    keep_bytes: int
    """Bytes of the rows in an SQLite file that remain when rows are deleted."""
    max_bytes: int
    """Maximum size of an SQLite file."""
    _is_migrated: bool = False
    _writer: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the writer: SQLite has one, and waiting for it here does not block a thread."""
    _cleaner: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by who makes room: the others find it made."""

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        database: str | Path,
        *,
        keep_bytes: int = MAX_FILE_BYTES,
        spare_bytes: int = _SPARE_BYTES,
        network: CompanyNetwork | None = None,
    ) -> AsyncIterator[Self]:
        """Open a store by the path of its SQLite file or the URL of its PostgreSQL database, and migrate it.

        A database that cannot be reached is migrated by the first request that reaches it. An SQLite file does not
        get larger than both bytes together: rows that find it full are stored after others were deleted. `network`
        has the authorities of a PostgreSQL database; None means the system's.
        """
        max_bytes = keep_bytes + spare_bytes
        engine = create_engine(database, max_bytes=max_bytes, network=network)
        store = cls(engine=engine, keep_bytes=keep_bytes, max_bytes=max_bytes)
        try:
            try:
                await store.migrate()
            except RecordsUnavailable as error:
                log.warning("the records' database is not ready: %s", error)
            yield store
        finally:
            await store.engine.dispose()

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is a file that one broker writes."""
        return self.engine.dialect.name == "sqlite"

    async def migrate(self) -> None:
        """Create the tables, and the columns that they lack.

        Raises RecordsUnavailable, also if a newer release has migrated them.
        """
        async with self._begin() as connection:
            if not self.is_sqlite:
                await connection.execute(select(text(f"pg_advisory_xact_lock({_MIGRATION_LOCK})")))
            await connection.run_sync(METADATA.create_all)
            await connection.run_sync(add_columns)
            if self.is_sqlite:
                await create_sizes(connection)
            version = (await connection.execute(select(VERSION.c.version))).scalar()
            if version is None:
                await connection.execute(insert(VERSION).values(id=1, version=SCHEMA_VERSION))
            elif version != SCHEMA_VERSION:
                raise RecordsUnavailable(
                    f"the records have schema {version}, this release needs {SCHEMA_VERSION}: install the newer release"
                )
        self._is_migrated = True

    async def add(self, table_name: str, rows: Sequence[Mapping[str, object]]) -> StoredBatch:
        """Store rows of a table; a row whose key is stored remains as it is. Raises RecordsUnavailable.

        Rows that no database can store are refused one by one, and the others of the batch are stored.
        """
        if len(rows) > MAX_BATCH:
            raise ValueError(f"{len(rows)} rows; at most {MAX_BATCH} are allowed in a batch")
        table, good, refused = RECORD_TABLES[table_name], [], []
        now = time.time_ns() // 1000
        for row in rows:
            try:
                good.append({**check_row(table, dict(row)), "stored_at": now})
            except RowRefused as error:
                refused.append(str(error))
        keys = [column.name for column in table.primary_key]
        good.sort(key=lambda row: tuple(str(row[key]) for key in keys))  # batches in one order do not deadlock
        if not good:
            return StoredBatch(stored=0, refused=refused)
        try:
            created = await self._insert_rows(table, good)
        except _BadRows:
            return await self._add_one_by_one(table, good, refused)
        return StoredBatch(stored=len(good), created=created, refused=refused)

    async def _add_one_by_one(self, table: Table, rows: list[dict[str, object]], refused: list[str]) -> StoredBatch:
        stored = 0
        for row in rows:
            try:
                await self._insert_rows(table, [row])
                stored += 1
            except _BadRows as error:
                refused.append(f"{table.name}: {error}"[:300])
        return StoredBatch(stored=stored, refused=refused)

    async def _insert_rows(self, table: Table, rows: list[dict[str, object]]) -> int | None:
        """Insert rows, and make room for them if the file is full; return how many were not there, if that is known."""
        for _ in range(_ATTEMPTS):
            try:
                return await self._try_insert(table, rows)
            except _FileFull:
                await self.delete_oldest()
        return await self._try_insert(table, rows)

    async def _try_insert(self, table: Table, rows: list[dict[str, object]]) -> int | None:
        statement = sqlite.insert(table) if self.is_sqlite else postgresql.insert(table)
        async with self._write() as connection:
            result = await connection.execute(statement.on_conflict_do_nothing(), rows)
        # a driver that sends many rows at once does not say how many of them were there before
        return result.rowcount if len(rows) == 1 and result.rowcount >= 0 else None

    async def find_executions(self, uids: Collection[str]) -> set[str]:
        """Return which of the executions are stored. Raises RecordsUnavailable."""
        if len(uids) > MAX_BATCH:
            raise ValueError(f"{len(uids)} uids; at most {MAX_BATCH} are allowed")
        async with self.read() as connection:
            found = await connection.execute(select(EXECUTIONS.c.uid).where(EXECUTIONS.c.uid.in_(list(uids))))
            return set(found.scalars())

    async def iterate(
        self,
        table_name: str,
        *,
        namespaces: Collection[str],
        caller: str | None = None,
        cursor: str = "",
        limit: int = MAX_BATCH,
    ) -> RecordPage:
        """Return the next rows of some namespaces, or of one caller there.

        The cursor of an empty page can be used later. A replica may commit a row after rows that were stored later: an
        export that must be complete ends some seconds before now. Raises InvalidRecordCursor, RecordsUnavailable.
        """
        table = RECORD_TABLES[table_name]
        order = [table.c.stored_at, *table.primary_key.columns]
        query = select(table).where(table.c.namespace.in_(list(namespaces)))
        if caller is not None:
            query = query.where(table.c.caller == caller)
        if cursor:
            values = _read_cursor(cursor, len(order))
            after = [literal(value, column.type) for value, column in zip(values, order, strict=True)]
            query = query.where(tuple_(*order) > tuple_(*after))
        limit, rows, characters = min(max(limit, 1), MAX_BATCH), [], 0
        async with self.read() as connection:
            selected = query.order_by(*order).limit(limit).execution_options(yield_per=_ROWS_AT_ONCE)
            result = await connection.stream(selected)
            async for row in result.mappings():
                rows.append(dict(row))
                characters += len(row.get("code") or "")
                if characters > _PAGE_CHARACTERS:
                    break
            await result.close()
        if rows:
            cursor = _write_cursor([rows[-1][column.name] for column in order])
        return RecordPage(rows=rows, cursor=cursor, is_last=len(rows) < limit and characters <= _PAGE_CHARACTERS)

    async def delete_older_than(self, stored_before: int) -> int:
        """Delete the rows that were stored before a time in microseconds; return their number."""
        return sum([await self._delete_from(table, stored_before) for table in RECORD_TABLES.values()])

    async def delete_oldest(self) -> int:
        """Delete rows of an SQLite file while all use more than `keep_bytes`; return their number.

        The oldest rows of the namespace that uses most are deleted first: nobody loses rows to a namespace that stores
        more than they do.
        """
        deleted = 0
        async with self._cleaner:
            while self.is_sqlite and (excess := await self._measure() - self.keep_bytes) > 0:
                async with self._write() as connection:
                    count = await delete_from_largest(connection, excess=excess)
                if count == 0:
                    break
                deleted += count
        return deleted

    async def _measure(self) -> int:
        async with self.read() as connection:
            pages, free, size = [
                (await connection.execute(text(f"PRAGMA {name}"))).scalar_one()
                for name in ("page_count", "freelist_count", "page_size")
            ]
            return int((pages - free) * size)

    async def _delete_from(self, table: Table, stored_before: int) -> int:
        chunk = delete_oldest_rows(table, table.c.stored_at < stored_before)
        deleted = 0
        while True:
            async with self._write() as connection:
                count = (await connection.execute(chunk)).rowcount
            deleted += count
            if count < DELETED_AT_ONCE:  # ends: a row that is stored meanwhile is not older
                return deleted

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """Return a connection for queries. Raises RecordsUnavailable."""
        if not self._is_migrated:
            await self.migrate()
        try:
            async with self.engine.connect() as connection:
                yield connection
        except (SQLAlchemyError, OSError, TimeoutError) as error:
            raise RecordsUnavailable(_describe(error)) from error

    @asynccontextmanager
    async def _write(self) -> AsyncIterator[AsyncConnection]:
        if not self._is_migrated:
            await self.migrate()
        async with self._begin() as connection:
            yield connection

    @asynccontextmanager
    async def _begin(self) -> AsyncIterator[AsyncConnection]:
        try:
            async with self._writer if self.is_sqlite else nullcontext(), self.engine.begin() as connection:
                yield connection
        except (SQLAlchemyError, OSError, TimeoutError) as error:
            if _blames_rows(error):
                raise _BadRows(_describe(error)) from error
            raise (_FileFull if _is_full(error) else RecordsUnavailable)(_describe(error)) from error


class _BadRows(Exception):
    """The database refused the values of a row."""


class _FileFull(RecordsUnavailable):
    """The SQLite file has its maximal size."""


def _blames_rows(error: BaseException) -> bool:
    if isinstance(error, IntegrityError | DataError):
        return True
    # classes of SQLSTATE: 22 is a data exception, 23 the violation of a constraint
    return isinstance(error, DBAPIError) and str(getattr(error.orig, "sqlstate", None))[:2] in ("22", "23")


def _is_full(error: BaseException) -> bool:
    cause = error.orig if isinstance(error, DBAPIError) else error
    return getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


def _describe(error: BaseException) -> str:
    """Return the message without the statement and its values."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return f"{type(cause).__name__}: {cause}"[:300]


def _write_cursor(values: list[Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode()


def _read_cursor(cursor: str, length: int) -> list[Any]:
    try:
        if len(cursor) > _MAX_CURSOR:
            raise ValueError("too long")
        stored_at, *keys = json.loads(base64.urlsafe_b64decode(cursor.encode()))
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidRecordCursor("cursor: is not one that a page has returned") from error
    is_valid = type(stored_at) is int and abs(stored_at) < 1 << 63 and all(isinstance(key, str) for key in keys)
    if not is_valid or len(keys) != length - 1 or any("\0" in key for key in keys):
        raise InvalidRecordCursor("cursor: is not one that a page of this table has returned")
    return [stored_at, *keys]
