"""Statements on the SQLite file of the audit log. Every function blocks and belongs in a thread."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from mcp_exec_broker.access.quotas import KEEP_SECONDS, ExecutionUsage
from mcp_exec_broker.audit.schema import BUSY_SECONDS, connect, read_pragma

_BEGIN_COLUMNS: Final = (
    "id",
    "at",
    "namespace",
    "source",
    "conversation",
    "execution",
    "uid",
    "pool",
    "caller",
    "user",
    "server",
    "tool",
    "digest",
    "arguments",
    "decision",
    "reason",
    "bytes_out",
)
_DENIAL_COLUMNS: Final = (*_BEGIN_COLUMNS, "ended", "outcome", "error", "calls")


_END_COLUMNS: Final = (
    "id",
    "ended",
    "outcome",
    "error",
    "milliseconds",
    "bytes_in",
    "bytes_out",
    "approval",
    "approved_by",
)
_COPIED_COLUMNS: Final = (
    "number",
    "id",
    "at",
    "namespace",
    "source",
    "conversation",
    "uid",
    "caller",
    "user",
    "server",
    "tool",
    "bytes_out",
    *("outcome", "error", "milliseconds", "bytes_in", "calls"),
)
_END_CALLS: Final = f"""
WITH ends ({", ".join(_END_COLUMNS)}) AS (VALUES %s)
UPDATE calls SET {", ".join(f"{name} = ends.{name}" for name in _END_COLUMNS[1:])}
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


Row = Mapping[str, Any]


def insert_calls(file: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Insert the records of calls that begin, all or none. Raises ValueError if the id of a single one is taken."""
    try:
        _insert(file, _BEGIN_COLUMNS, rows)
    except sqlite3.IntegrityError as error:
        if len(rows) > 1:
            raise
        raise ValueError(f"the audit log already contains a record of call {rows[0]['id']}") from error


def insert_denials(file: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Insert ended records, each of several denied calls, all or none."""
    _insert(file, _DENIAL_COLUMNS, rows)


def end_calls(file: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Write the ends of calls, all or none; a record that has an end keeps it."""
    file.execute(_END_CALLS % _list_places(_END_COLUMNS, rows), _flatten(_END_COLUMNS, rows))


def _insert(file: sqlite3.Connection, columns: Sequence[str], rows: Sequence[Row]) -> None:
    file.execute(
        f"INSERT INTO calls ({', '.join(columns)}) VALUES {_list_places(columns, rows)}", _flatten(columns, rows)
    )


def _list_places(columns: Sequence[str], rows: Sequence[Row]) -> str:
    return ", ".join([f"({', '.join('?' * len(columns))})"] * len(rows))


def _flatten(columns: Sequence[str], rows: Sequence[Row]) -> list[Any]:
    return [row[name] for row in rows for name in columns]


RowWriter = Callable[[sqlite3.Connection, Sequence[Row]], None]
ROW_WRITERS: Final[tuple[RowWriter, ...]] = (insert_calls, insert_denials, end_calls)
"""Statements for many rows, in the order in which a batch must run them: the end of a call follows its beginning."""


def select_unfinished(file: sqlite3.Connection) -> list[str]:
    """Return the ids of the records without an end."""
    return [row["id"] for row in file.execute("SELECT id FROM calls WHERE ended IS NULL")]


def select_uncopied(file: sqlite3.Connection, limit: int) -> list[sqlite3.Row]:
    """Return the oldest ended records that were not marked as copied."""
    query = f"SELECT {', '.join(_COPIED_COLUMNS)} FROM calls WHERE copied = 0 AND ended IS NOT NULL ORDER BY number"
    return file.execute(f"{query} LIMIT ?", (limit,)).fetchall()


def mark_copied(file: sqlite3.Connection, numbers: Sequence[int]) -> None:
    """Mark records as copied."""
    places = ", ".join("?" * len(numbers))
    file.execute(f"UPDATE calls SET copied = 1 WHERE number IN ({places})", numbers)


def delete_old(file: sqlite3.Connection, *, before: str, count: int) -> int:
    """Delete those of the `count` oldest records that have an end and began before a time; return their number."""
    return file.execute(_DELETE_OLD, {"count": count, "before": before}).rowcount


def delete_largest(file: sqlite3.Connection, *, count: int) -> int:
    """Delete the `count` oldest records with an end of the namespace whose records are largest; return their number."""
    return file.execute(_DELETE_LARGEST, {"count": count}).rowcount


def close_execution(file: sqlite3.Connection, uid: str) -> None:
    """Store that an execution may make no more calls."""
    file.execute(_CLOSE, (uid, KEEP_SECONDS))


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
        )
        for row in file.execute("SELECT * FROM usage")
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


def select_records(path: Path, conditions: Mapping[str, Any], limit: int) -> list[sqlite3.Row]:
    """Return the newest `limit` records that meet all conditions, plus one more if there are more.

    `conditions` maps SQL texts, which must not contain foreign input, to their values. Uses its own connection.
    """
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS)) as file:
        file.row_factory = sqlite3.Row
        return file.execute(
            f"SELECT * FROM calls {where} ORDER BY number DESC LIMIT ?",
            (*conditions.values(), limit + 1),
        ).fetchall()


def run_checkpoint(path: Path) -> None:
    """Move the write-ahead log into the file and wait for the disk. Uses its own connection."""
    with closing(connect(path)) as file:
        file.execute("PRAGMA wal_checkpoint(PASSIVE)")
