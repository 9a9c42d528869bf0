"""The SQLite file of the audit log: its table and statements. Every function blocks and belongs in a thread."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

_BUSY_SECONDS: Final = 5.0
"""Longest wait for another connection's lock."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS calls (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  at TEXT NOT NULL,
  namespace TEXT NOT NULL,
  execution TEXT NOT NULL,
  uid TEXT NOT NULL,
  pool TEXT NOT NULL,
  caller TEXT,
  user TEXT,
  server TEXT NOT NULL,
  tool TEXT NOT NULL,
  digest TEXT NOT NULL,
  arguments TEXT NOT NULL,
  decision TEXT NOT NULL,
  reason TEXT NOT NULL,
  approval TEXT,
  approved_by TEXT,
  ended TEXT,
  outcome TEXT,
  error TEXT NOT NULL DEFAULT '',
  milliseconds REAL,
  bytes_in INTEGER NOT NULL DEFAULT 0,
  bytes_out INTEGER NOT NULL DEFAULT 0,
  calls INTEGER NOT NULL DEFAULT 1
);
CREATE INDEX IF NOT EXISTS calls_execution ON calls (namespace, execution, number);
CREATE INDEX IF NOT EXISTS calls_open ON calls (number) WHERE ended IS NULL;
"""
"""Numbers rise with time."""
_ADDED_COLUMNS: Final = {"calls": "INTEGER NOT NULL DEFAULT 1"}
"""Columns that files of earlier versions lack."""
_BEGIN_COLUMNS: Final = (
    "id",
    "at",
    "namespace",
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
_END_CALLS: Final = f"""
WITH ends ({", ".join(_END_COLUMNS)}) AS (VALUES %s)
UPDATE calls SET {", ".join(f"{name} = ends.{name}" for name in _END_COLUMNS[1:])}
FROM ends WHERE calls.id = ends.id AND calls.ended IS NULL
"""
_DELETE_OLDEST: Final = """
DELETE FROM calls WHERE number IN (
  SELECT number FROM (SELECT number, at, ended FROM calls ORDER BY number LIMIT :count)
  WHERE at < :before AND ended IS NOT NULL
)
"""


def connect(path: Path) -> sqlite3.Connection:
    """Open the file in autocommit mode.

    Automatic checkpoints are off because a checkpoint waits for the disk: only `run_checkpoint` moves the write-ahead
    log into the file.
    """
    file = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=_BUSY_SECONDS)
    file.row_factory = sqlite3.Row
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "wal_autocheckpoint = 0"):
        file.execute(f"PRAGMA {pragma}")
    return file


def create_tables(file: sqlite3.Connection) -> None:
    """Create the table, or add the columns that a file of an earlier version lacks."""
    file.executescript(_SCHEMA)
    present = {row["name"] for row in file.execute("PRAGMA table_info(calls)")}
    for name, kind in _ADDED_COLUMNS.items():
        if name not in present:
            file.execute(f"ALTER TABLE calls ADD COLUMN {name} {kind}")


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


def delete_oldest(file: sqlite3.Connection, *, before: str, count: int) -> int:
    """Delete those of the `count` oldest records that have an end and began before a time; return their number."""
    return file.execute(_DELETE_OLDEST, {"count": count, "before": before}).rowcount


def measure_used_bytes(file: sqlite3.Connection) -> int:
    """Return the bytes of the pages in use. SQLite reuses free pages; the file itself never shrinks."""
    pages, free, size = (
        file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def select_records(path: Path, conditions: Mapping[str, Any], limit: int) -> list[sqlite3.Row]:
    """Return the newest `limit` records that meet all conditions, plus one more if there are more.

    `conditions` maps SQL texts, which must not contain foreign input, to their values. Uses its own connection.
    """
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY_SECONDS)) as file:
        file.row_factory = sqlite3.Row
        return file.execute(
            f"SELECT * FROM calls {where} ORDER BY number DESC LIMIT ?",
            (*conditions.values(), limit + 1),
        ).fetchall()


def run_checkpoint(path: Path) -> None:
    """Move the write-ahead log into the file and wait for the disk. Uses its own connection."""
    with closing(connect(path)) as file:
        file.execute("PRAGMA wal_checkpoint(PASSIVE)")
