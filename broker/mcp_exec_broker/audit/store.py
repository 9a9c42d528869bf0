"""The SQLite file of the audit log: its table and statements. Every function blocks and belongs in a thread."""

import sqlite3
from collections.abc import Mapping
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


def _insert_statement(columns: tuple[str, ...]) -> str:
    return f"INSERT INTO calls ({', '.join(columns)}) VALUES ({', '.join(':' + name for name in columns)})"


_INSERT_CALL: Final = _insert_statement(_BEGIN_COLUMNS)
_INSERT_DENIALS: Final = _insert_statement(_DENIAL_COLUMNS)
_END_CALL: Final = """
UPDATE calls SET ended = :ended, outcome = :outcome, error = :error, milliseconds = :milliseconds,
  bytes_in = :bytes_in, bytes_out = :bytes_out, approval = :approval, approved_by = :approved_by
WHERE id = :id AND ended IS NULL
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


def insert_call(file: sqlite3.Connection, row: Mapping[str, Any]) -> None:
    """Insert the record of a call that begins. Raises ValueError if the id is taken."""
    try:
        file.execute(_INSERT_CALL, row)
    except sqlite3.IntegrityError as error:
        raise ValueError(f"the audit log already contains a record of call {row['id']}") from error


def insert_denials(file: sqlite3.Connection, row: Mapping[str, Any]) -> None:
    """Insert one ended record of several denied calls."""
    file.execute(_INSERT_DENIALS, row)


def end_call(file: sqlite3.Connection, row: Mapping[str, Any]) -> None:
    """Write the end of a call; a record that has an end keeps it."""
    file.execute(_END_CALL, row)


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
