"""The SQLite file of the audit: its table, its statements, and how it is opened."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

_BUSY_SECONDS: Final = 5.0

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
"""The table of calls; numbers rise with time."""
_LATER: Final = {"calls": "INTEGER NOT NULL DEFAULT 1"}
"""Columns that files of earlier versions lack."""
_KNOWN: Final = (
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
BEGIN: Final = f"INSERT INTO calls ({', '.join(_KNOWN)}) VALUES ({', '.join(':' + name for name in _KNOWN)})"
"""Makes a record."""
END: Final = """
UPDATE calls SET ended = :ended, outcome = :outcome, error = :error, milliseconds = :milliseconds,
  bytes_in = :bytes_in, bytes_out = :bytes_out, approval = :approval, approved_by = :approved_by
WHERE id = :id AND ended IS NULL
"""
"""Ends a record."""
_ENDED: Final = (*_KNOWN, "ended", "outcome", "error", "calls")
MANY: Final = f"INSERT INTO calls ({', '.join(_ENDED)}) VALUES ({', '.join(':' + name for name in _ENDED)})"
"""Makes a record of many calls, with its end."""
OLDEST: Final = """
DELETE FROM calls WHERE number IN (
  SELECT number FROM (SELECT number, at, ended FROM calls ORDER BY number LIMIT :some)
  WHERE at < :before AND ended IS NOT NULL
)
"""
"""Forgets those of the oldest that began before a time."""
WIRE: Final = {
    "id": "id",
    "at": "at",
    "namespace": "namespace",
    "execution": "execution",
    "uid": "uid",
    "pool": "pool",
    "caller": "caller",
    "user": "user",
    "server": "server",
    "tool": "tool",
    "digest": "digest",
    "arguments": "arguments",
    "decision": "decision",
    "reason": "reason",
    "approval": "approval",
    "approved_by": "approvedBy",
    "ended": "endedAt",
    "outcome": "outcome",
    "error": "error",
    "milliseconds": "durationMs",
    "bytes_in": "bytesIn",
    "bytes_out": "bytesOut",
    "calls": "calls",
}
"""Columns and what they are called in answers and lines."""


def connect(path: Path) -> sqlite3.Connection:
    """In autocommit; the log of writes is moved into the file by `sweep` alone, because that syncs."""
    file = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=_BUSY_SECONDS)
    file.row_factory = sqlite3.Row
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "wal_autocheckpoint = 0"):
        file.execute(f"PRAGMA {pragma}")
    return file


def create_tables(file: sqlite3.Connection) -> None:
    """Makes the table, or brings one of an earlier version up to date."""
    file.executescript(_SCHEMA)
    present = {row["name"] for row in file.execute("PRAGMA table_info(calls)")}
    for name, kind in _LATER.items():
        if name not in present:
            file.execute(f"ALTER TABLE calls ADD COLUMN {name} {kind}")


def select_records(path: Path, given: dict[str, Any], wanted: int) -> list[sqlite3.Row]:
    """The newest records for which all conditions hold, and one more where there are more; by a connection of its own.

    `given` has values by conditions, which are the caller's own texts.
    """
    where = f"WHERE {' AND '.join(given)}" if given else ""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY_SECONDS)) as file:
        file.row_factory = sqlite3.Row
        return file.execute(
            f"SELECT * FROM calls {where} ORDER BY number DESC LIMIT ?",
            (*given.values(), wanted + 1),
        ).fetchall()


def run_checkpoint(path: Path) -> None:
    """Moves the log of writes into the file, and waits for the disk."""
    with closing(connect(path)) as file:
        file.execute("PRAGMA wal_checkpoint(PASSIVE)")
