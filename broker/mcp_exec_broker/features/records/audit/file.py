"""The audit log's SQLite file: connections, tables, statements. Every function blocks and belongs in a thread."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Select, Update, select, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable, DDLElement

from mcp_exec_broker.core.access.quotas import CLOCK_SECONDS, KEEP_SECONDS, ExecutionUsage
from mcp_exec_broker.core.calls.audit import Row
from mcp_exec_broker.features.records.tables import AUDIT

RowWriter = Callable[[sqlite3.Connection, Sequence[Row]], None]

BUSY_SECONDS: Final = 5.0
"""Longest wait for another connection's lock."""
_RECORD_BYTES: Final = 1000
"""Bytes of a record and its index entries without its arguments, roughly."""
_DIALECT: Final = sqlite.dialect(paramstyle="named")
_CALL_KEYS: Final = tuple(column.key for column in AUDIT.columns if column.key not in ("number", "copied"))
_END_KEYS: Final = (
    *("id", "ended_at", "outcome", "error", "duration_ms"),
    *("bytes_in", "bytes_out", "approval", "approved_by"),
)
_TRIGGERS: Final = f"""
CREATE TABLE IF NOT EXISTS usage (
  uid TEXT PRIMARY KEY,
  expires INTEGER NOT NULL,
  calls INTEGER NOT NULL DEFAULT 0,
  failed INTEGER NOT NULL DEFAULT 0,
  denied INTEGER NOT NULL DEFAULT 0,
  bytes_in INTEGER NOT NULL DEFAULT 0,
  bytes_out INTEGER NOT NULL DEFAULT 0,
  closed INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sizes (namespace TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO sizes (namespace, bytes)
  SELECT namespace, sum({_RECORD_BYTES} + length(arguments)) FROM calls
  WHERE NOT EXISTS (SELECT 1 FROM sizes) GROUP BY namespace;
DROP TRIGGER IF EXISTS calls_inserted;
CREATE TRIGGER calls_inserted AFTER INSERT ON calls BEGIN
  INSERT INTO usage (uid, expires, calls, failed, denied, bytes_out) SELECT
    NEW.uid, CAST(strftime('%s', 'now') AS INTEGER) + {KEEP_SECONDS}, NEW.calls, (NEW.ended IS NOT NULL) * NEW.calls,
    (NEW.outcome IS 'denied') * NEW.calls, NEW.bytes_out
    WHERE NEW.uid <> '' ON CONFLICT (uid) DO UPDATE SET
    expires = CASE WHEN closed THEN expires ELSE excluded.expires END,
    calls = calls + excluded.calls, failed = failed + excluded.failed,
    denied = denied + excluded.denied, bytes_out = bytes_out + excluded.bytes_out;
  INSERT INTO sizes (namespace, bytes) VALUES (NEW.namespace, {_RECORD_BYTES} + length(NEW.arguments))
    ON CONFLICT (namespace) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
DROP TRIGGER IF EXISTS calls_ended;
CREATE TRIGGER calls_ended AFTER UPDATE OF ended ON calls BEGIN
  UPDATE usage SET failed = failed + (NEW.outcome <> 'ok'), denied = denied + (NEW.outcome = 'denied'),
    bytes_in = bytes_in + NEW.bytes_in WHERE uid = NEW.uid;
END;
DROP TRIGGER IF EXISTS calls_deleted;
CREATE TRIGGER calls_deleted AFTER DELETE ON calls BEGIN
  UPDATE sizes SET bytes = bytes - {_RECORD_BYTES} - length(OLD.arguments) WHERE namespace = OLD.namespace;
END;
"""
"""What each execution has used, which outlives its records and the process, and the size of each namespace's records.
Triggers count both in the statement that writes a record, so that neither differs from the records after a crash.
Direct calls have no UID."""
_INSERT_CALLS: Final = f"INSERT INTO calls ({', '.join(AUDIT.c[key].name for key in _CALL_KEYS)}) VALUES %s"
_END_CALLS: Final = f"""
WITH ends ({", ".join(AUDIT.c[key].name for key in _END_KEYS)}) AS (VALUES %s)
UPDATE calls SET {", ".join(f"{AUDIT.c[key].name} = ends.{AUDIT.c[key].name}" for key in _END_KEYS[1:])}
FROM ends WHERE calls.id = ends.id AND calls.ended IS NULL
"""
_DELETE_OLD: Final = """
DELETE FROM calls WHERE number IN (
  SELECT number FROM (SELECT number, at, ended FROM calls ORDER BY number LIMIT :count)
  WHERE at < :before AND ended IS NOT NULL
)
"""
_DELETE_LARGEST: Final = """
DELETE FROM calls WHERE number IN (
  SELECT number FROM calls INDEXED BY calls_namespace
  WHERE namespace = (SELECT namespace FROM sizes ORDER BY bytes DESC LIMIT 1) AND ended IS NOT NULL
  ORDER BY number LIMIT :count
)
"""
_CLOSE: Final = """
INSERT INTO usage (uid, expires, closed) VALUES (?, CAST(strftime('%s', 'now') AS INTEGER) + ?, 1)
ON CONFLICT (uid) DO UPDATE SET closed = 1, expires = excluded.expires
"""


def connect(path: Path) -> sqlite3.Connection:
    """Open the file in autocommit mode.

    Automatic checkpoints are off because a checkpoint waits for the disk: only `run_checkpoint` moves the write-ahead
    log into the file.
    """
    file = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS)
    file.row_factory = sqlite3.Row
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "wal_autocheckpoint = 0", "journal_size_limit = 0"):
        file.execute(f"PRAGMA {pragma}")
    return file


def limit_size(file: sqlite3.Connection, max_bytes: int) -> None:
    """Refuse statements of this connection that would make the file larger. A larger file keeps its size."""
    file.execute(f"PRAGMA max_page_count = {max(max_bytes // read_pragma(file, 'page_size'), 1)}")


def create_tables(file: sqlite3.Connection) -> None:
    """Create the tables, or add the columns that a file of an earlier version lacks."""
    _define(file, CreateTable(AUDIT, if_not_exists=True))
    present = {row["name"] for row in file.execute("PRAGMA table_info(calls)")}
    for column in AUDIT.columns:
        if column.name not in present:
            file.execute(f"ALTER TABLE calls ADD COLUMN {CreateColumn(column).compile(dialect=_DIALECT)}")
    for index in AUDIT.indexes:
        _define(file, CreateIndex(index, if_not_exists=True))
    file.executescript(_TRIGGERS)


def _define(file: sqlite3.Connection, element: DDLElement) -> None:
    file.execute(str(element.compile(dialect=_DIALECT)))


def _execute(file: sqlite3.Connection, statement: Select[Any] | Update) -> sqlite3.Cursor:
    compiled = statement.compile(dialect=_DIALECT, compile_kwargs={"render_postcompile": True})
    return file.execute(str(compiled), compiled.params or {})


def read_pragma(file: sqlite3.Connection, name: str) -> int:
    """Return the value of a pragma."""
    return int(file.execute(f"PRAGMA {name}").fetchone()[0])


def insert_calls(file: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Insert the records of calls, all or none. Raises ValueError if the id of a single one is taken."""
    try:
        file.execute(_INSERT_CALLS % _list_places(_CALL_KEYS, rows), _flatten(_CALL_KEYS, rows))
    except sqlite3.IntegrityError as error:
        if len(rows) > 1:
            raise
        raise ValueError(f"the audit log already contains a record of call {rows[0]['id']}") from error


def end_calls(file: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Write the ends of calls, all or none; a record that has an end keeps it."""
    file.execute(_END_CALLS % _list_places(_END_KEYS, rows), _flatten(_END_KEYS, rows))


def _list_places(keys: Sequence[str], rows: Sequence[Row]) -> str:
    return ", ".join([f"({', '.join('?' * len(keys))})"] * len(rows))


def _flatten(keys: Sequence[str], rows: Sequence[Row]) -> list[Any]:
    return [row[key] for row in rows for key in keys]


ROW_WRITERS: Final[tuple[RowWriter, ...]] = (insert_calls, end_calls)
"""Statements for many rows, in the order of a batch: the end of a call follows its beginning."""


def select_unfinished(file: sqlite3.Connection) -> list[str]:
    """Return the ids of the records without an end."""
    return [row["id"] for row in _execute(file, select(AUDIT.c.id).where(AUDIT.c.ended_at.is_(None)))]


def select_uncopied(file: sqlite3.Connection, limit: int) -> list[Row]:
    """Return the oldest ended records that were not marked as copied."""
    statement = select(AUDIT).where(AUDIT.c.copied == 0, AUDIT.c.ended_at.is_not(None)).order_by(AUDIT.c.number)
    return _read(file, statement.limit(limit))


def mark_copied(file: sqlite3.Connection, numbers: Sequence[int]) -> None:
    """Mark records as copied."""
    _execute(file, update(AUDIT).where(AUDIT.c.number.in_(numbers)).values(copied=1))


def select_records(path: Path, statement: Select[Any]) -> list[Row]:
    """Return the rows that a statement selects. Uses its own connection."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS)) as file:
        return _read(file, statement)


def _read(file: sqlite3.Connection, statement: Select[Any]) -> list[Row]:
    keys = AUDIT.columns.keys()
    return [dict(zip(keys, row, strict=True)) for row in _execute(file, statement)]


def delete_old(file: sqlite3.Connection, *, before: str, count: int) -> int:
    """Delete those of the `count` oldest records that have an end and began before a time; return their number."""
    return file.execute(_DELETE_OLD, {"count": count, "before": before}).rowcount


def delete_largest(file: sqlite3.Connection, *, count: int) -> int:
    """Delete the `count` oldest records with an end of the namespace whose records are largest; return their number."""
    return file.execute(_DELETE_LARGEST, {"count": count}).rowcount


def close_execution(file: sqlite3.Connection, uid: str, *, grant_seconds: int) -> None:
    """Store that an execution may make no more calls, though its grant may be valid for so many seconds."""
    file.execute(_CLOSE, (uid, grant_seconds + CLOCK_SECONDS))


def delete_expired_usage(file: sqlite3.Connection) -> None:
    """Delete what executions used whose grants have expired."""
    file.execute("DELETE FROM usage WHERE expires <= CAST(strftime('%s', 'now') AS INTEGER)")


def select_usage(file: sqlite3.Connection) -> list[ExecutionUsage]:
    """Return what each execution used."""
    return [
        ExecutionUsage(
            uid=row["uid"],
            calls=row["calls"],
            failed=row["failed"],
            denied=row["denied"],
            bytes_in=row["bytes_in"],
            bytes_out=row["bytes_out"],
            is_closed=bool(row["closed"]),
            keep_seconds=max(row["remaining"], 0),
        )
        for row in file.execute("SELECT *, expires - CAST(strftime('%s', 'now') AS INTEGER) AS remaining FROM usage")
    ]


def measure_used_bytes(file: sqlite3.Connection) -> int:
    """Return the bytes of the pages in use. SQLite reuses free pages; the file itself never shrinks."""
    pages, free, size = (read_pragma(file, name) for name in ("page_count", "freelist_count", "page_size"))
    return (pages - free) * size


def truncate_log(file: sqlite3.Connection) -> None:
    """Move the write-ahead log into the file and empty it, unless another connection reads. Waits for the disk."""
    file.execute("PRAGMA busy_timeout = 0")
    try:
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        file.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")


def run_checkpoint(path: Path) -> None:
    """Move the write-ahead log into the file and wait for the disk. Uses its own connection."""
    with closing(connect(path)) as file:
        file.execute("PRAGMA wal_checkpoint(PASSIVE)")
