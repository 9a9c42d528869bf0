"""The tables of the audit log's SQLite file, and connections to it. Every function blocks and belongs in a thread."""

import sqlite3
from pathlib import Path
from typing import Final

from mcp_exec_broker.access.quotas import KEEP_SECONDS

BUSY_SECONDS: Final = 5.0
"""Longest wait for another connection's lock."""
_RECORD_BYTES: Final = 1000
"""Bytes of a record and its index entries without its arguments, roughly."""

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
  calls INTEGER NOT NULL DEFAULT 1,
  source TEXT NOT NULL DEFAULT 'code',
  conversation TEXT,
  copied INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS calls_execution ON calls (namespace, execution, number);
CREATE INDEX IF NOT EXISTS calls_namespace ON calls (namespace, number);
CREATE INDEX IF NOT EXISTS calls_open ON calls (number) WHERE ended IS NULL;
"""
"""Numbers rise with time."""
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
CREATE INDEX IF NOT EXISTS calls_uncopied ON calls (number) WHERE copied = 0 AND ended IS NOT NULL;
DROP TRIGGER IF EXISTS calls_inserted;
CREATE TRIGGER calls_inserted AFTER INSERT ON calls BEGIN
  INSERT INTO usage (uid, expires, calls, failed, denied, bytes_out) SELECT
    NEW.uid, CAST(strftime('%s', 'now') AS INTEGER) + {KEEP_SECONDS}, NEW.calls, (NEW.ended IS NOT NULL) * NEW.calls,
    (NEW.outcome IS 'denied') * NEW.calls, NEW.bytes_out
    WHERE NEW.uid <> '' ON CONFLICT (uid) DO UPDATE SET expires = excluded.expires, calls = calls + excluded.calls,
    failed = failed + excluded.failed, denied = denied + excluded.denied, bytes_out = bytes_out + excluded.bytes_out;
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
_ADDED_COLUMNS: Final = {
    "calls": "INTEGER NOT NULL DEFAULT 1",
    "source": "TEXT NOT NULL DEFAULT 'code'",
    "conversation": "TEXT",
    "copied": "INTEGER NOT NULL DEFAULT 0",
}
"""Columns that files of earlier versions lack."""


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
    """Refuse statements of this connection by which the file would get larger. A larger file keeps its size."""
    file.execute(f"PRAGMA max_page_count = {max(max_bytes // read_pragma(file, 'page_size'), 1)}")


def create_tables(file: sqlite3.Connection) -> None:
    """Create the table, or add the columns that a file of an earlier version lacks."""
    file.executescript(_SCHEMA)
    present = {row["name"] for row in file.execute("PRAGMA table_info(calls)")}
    for name, kind in _ADDED_COLUMNS.items():
        if name not in present:
            file.execute(f"ALTER TABLE calls ADD COLUMN {name} {kind}")
    file.executescript(_TRIGGERS)


def read_pragma(file: sqlite3.Connection, name: str) -> int:
    """Return the value of a pragma."""
    return int(file.execute(f"PRAGMA {name}").fetchone()[0])
