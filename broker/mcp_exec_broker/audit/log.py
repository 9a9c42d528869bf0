"""One record of each call, written before it travels and when it ends.

Records are in a SQLite file, for the query, and lines of the logger `mcp_exec.audit`, for whoever collects logs.
A write is a write to the file in a transaction of its own, without a sync to the disk: it survives the broker's death,
not that of its node. It takes some 40 us and is done where it is asked for; what syncs is done in a thread.
"""

import asyncio
import hashlib
import json
import logging
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Self

from mcp_exec_api.meta import micro_time, now
from mcp_exec_broker.audit.store import (
    BEGIN,
    END,
    MANY,
    OLDEST,
    WIRE,
    connect,
    create_tables,
    run_checkpoint,
    select_records,
)
from mcp_exec_broker.errors import CallOutcome

lines = logging.getLogger("mcp_exec.audit")
log = logging.getLogger(__name__)

_MAX_ERROR: Final = 500
_MAX_PAGE: Final = 1000
_SWEEP_SECONDS: Final = 30.0
_BATCH: Final = 200
"""Records that are forgotten in one go: more would hold up calls."""


@dataclass(frozen=True, kw_only=True)
class AuditRecord:
    """What is known of a call before it is made."""

    id: str
    """Unique among all calls at this broker, ever: not what the sandbox calls it."""
    namespace: str
    execution: str
    """The execution's name."""
    uid: str
    """The execution's uid."""
    pool: str
    caller: str | None
    user: str | None
    server: str
    tool: str
    """Its name at the server."""
    digest: str
    """SHA-256 of the arguments as JSON, see digest_of."""
    arguments: str
    """Redacted and bounded."""
    decision: str
    """Allow, Deny, Approve."""
    reason: str
    """Why: Verdict.why."""


def compute_digest(arguments: Any) -> str:
    """`sha256:` of the arguments as JSON with sorted keys, as the code sent them."""
    text = json.dumps(arguments, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def write_to_stdout() -> None:
    """Sends the records as lines of JSON to standard output, apart from the process's own logs."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("%(message)s"))
    lines.handlers = [handler]
    lines.setLevel(logging.INFO)
    lines.propagate = False


class AuditLog:
    """The records, in a SQLite file and as lines of the logger `mcp_exec.audit`."""

    def __init__(self, path: Path, *, keep: timedelta, keep_bytes: int) -> None:
        self._path = path
        self._keep = keep
        self._keep_bytes = keep_bytes
        self._file = connect(path)
        create_tables(self._file)

    @classmethod
    @asynccontextmanager
    async def opened(
        cls, path: Path, *, keep_days: float = 30, keep_bytes: int = 1024**3, sweep_seconds: float = _SWEEP_SECONDS
    ) -> AsyncIterator[Self]:
        """Opens the file and closes the records of calls that an earlier process left under way.

        Records are forgotten after `keep_days`, and the oldest ones where the file is larger than `keep_bytes`. One
        process has the file at a time. Raises sqlite3.Error, OSError.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        audit = cls(path, keep=timedelta(days=keep_days), keep_bytes=keep_bytes)
        audit.close_unfinished()
        sweeping = asyncio.create_task(audit._sweeping(sweep_seconds), name="audit sweep")
        try:
            yield audit
        finally:
            sweeping.cancel()
            await asyncio.wait({sweeping})
            audit._file.close()

    def close_unfinished(self) -> int:
        """Ends the records that have no end, as `unfinished`; says how many."""
        changed = 0
        for (id,) in self._file.execute("SELECT id FROM calls WHERE ended IS NULL").fetchall():
            changed += 1
            self._end(id, CallOutcome.UNFINISHED, error="the broker ended while the call was under way")
        return changed

    async def begin(self, call: AuditRecord) -> None:
        """Returns when the record is written: only then may the call travel. Raises sqlite3.Error where it can't be.

        ValueError where there is a record of this id already.
        """
        record = {name: _storable(value) for name, value in asdict(call).items()} | {"at": micro_time(now())}
        try:
            self._file.execute(BEGIN, record)
        except sqlite3.IntegrityError as error:
            raise ValueError(f"there is a record of call {call.id} already") from error
        _say("tool call started", {WIRE[name]: value for name, value in record.items()})

    async def end(
        self,
        id: str,
        outcome: CallOutcome,
        *,
        milliseconds: float,
        bytes_in: int = 0,
        bytes_out: int = 0,
        error: str = "",
        approval: str | None = None,
        approved_by: str | None = None,
    ) -> None:
        """How it ended. `bytes_in` went into the sandbox, `bytes_out` to the server; `error` holds no arguments."""
        self._end(
            id,
            outcome,
            milliseconds=milliseconds,
            bytes_in=bytes_in,
            bytes_out=bytes_out,
            error=error,
            approval=approval,
            approved_by=approved_by,
        )

    def many(
        self, call: AuditRecord, outcome: CallOutcome, *, calls: int, first: datetime, last: datetime, error: str
    ) -> None:
        """Writes one record of many calls that were not made. Raises sqlite3.Error where it can't be."""
        record = {name: _storable(value) for name, value in asdict(call).items()}
        record |= {"at": micro_time(first), "ended": micro_time(last), "outcome": outcome.value, "calls": calls}
        record["error"] = _storable(error[:_MAX_ERROR])
        self._file.execute(MANY, record)
        _say("tool calls denied", {WIRE[name]: value for name, value in record.items()})

    def _end(self, id: str, outcome: CallOutcome, **known: Any) -> None:
        record: dict[str, Any] = {
            "id": id,
            "ended": micro_time(now()),
            "outcome": outcome.value,
            "error": "",
            "milliseconds": None,
            "bytes_in": 0,
            "bytes_out": 0,
            "approval": None,
            "approved_by": None,
        } | known
        record["error"] = _storable(record["error"][:_MAX_ERROR])
        self._file.execute(END, record)
        _say("tool call ended", {WIRE[name]: value for name, value in record.items()})

    async def query(
        self,
        *,
        namespace: str = "",
        execution: str = "",
        tool: str = "",
        outcome: str = "",
        since: str = "",
        until: str = "",
        limit: int = 100,
        cursor: str = "",
    ) -> dict[str, Any]:
        """`{"items": [...], "next": cursor or None}`, newest first. Raises ValueError where a filter is no good.

        `tool` is SERVER.TOOL or SERVER, `since` and `until` are times as RFC 3339 has them; `since` counts in,
        `until` does not. A call under way has no outcome.
        """
        conditions: dict[str, Any] = {
            "namespace = ?": namespace,
            "execution = ?": execution,
            "outcome = ?": CallOutcome(outcome).value if outcome else "",
            "at >= ?": _moment(since, "since"),
            "at < ?": _moment(until, "until"),
            "number < ?": _cursor(cursor),
        }
        server, _, name = tool.partition(".")
        conditions |= {"server = ?": server, "tool = ?": name}
        given = {condition: value for condition, value in conditions.items() if value}
        wanted = max(1, min(limit, _MAX_PAGE))
        rows = await asyncio.to_thread(select_records, self._path, given, wanted)
        items = [{wire: row[name] for name, wire in WIRE.items()} for row in rows[:wanted]]
        return {"items": items, "next": str(rows[wanted - 1]["number"]) if len(rows) > wanted else None}

    async def _sweeping(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await self.sweep()
            except sqlite3.Error as error:
                log.warning("old records of the audit stay: %s", error)

    async def sweep(self) -> int:
        """Forgets what is too old or too much, and moves the log of writes into the file; says how many it forgot."""
        oldest = micro_time(now() - self._keep)
        forgotten = await self._forget(lambda: self._delete(before=oldest))
        everything = micro_time(now())
        forgotten += await self._forget(
            lambda: self._delete(before=everything) if self._size() > self._keep_bytes else 0
        )
        await asyncio.to_thread(run_checkpoint, self._path)
        return forgotten

    async def _forget(self, some: Callable[[], int]) -> int:
        total = 0
        while count := some():
            total += count
            await asyncio.sleep(0)  # calls come between
        return total

    def _delete(self, *, before: str) -> int:
        return self._file.execute(OLDEST, {"some": _BATCH, "before": before}).rowcount

    def _size(self) -> int:
        """Bytes of the pages in use; what is freed is used again, and the file gets no smaller."""
        pages, free, size = (
            self._file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)


def _storable(value: Any) -> Any:
    """Texts from JSON may hold halves of surrogate pairs, which nothing can store."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _moment(text: str, name: str) -> str:
    if not text:
        return ""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{name}: must be a time such as 2026-01-02T03:04:05Z") from error
    return micro_time(found if found.tzinfo else found.replace(tzinfo=UTC))


def _cursor(text: str) -> int:
    if text and not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ValueError("cursor: must be what an answer had as next")
    return int(text or 0)


def _say(event: str, record: dict[str, Any]) -> None:
    if lines.isEnabledFor(logging.INFO):
        lines.info(json.dumps({"event": event, **record}, ensure_ascii=False))
