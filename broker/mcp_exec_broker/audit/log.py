"""The audit log: one record of each tool call, written before the call travels and again when it ends.

Records go to a SQLite file, for queries, and to the log `mcp_exec.audit`, for log collectors. A write reaches the file
without waiting for the disk: it survives the end of the broker, but not a crash of the node.
"""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Self, cast

from mcp_exec_api.meta import micro_time, now
from mcp_exec_broker.access.quotas import ExecutionUsage
from mcp_exec_broker.audit import store
from mcp_exec_broker.audit.record import MAX_ERROR, SOURCES, WIRE_NAMES, AuditRecord, log_line, make_storable
from mcp_exec_broker.audit.writer import AuditWriter
from mcp_exec_broker.errors import CallOutcome

log = logging.getLogger(__name__)

_MAX_PAGE: Final = 1000
_CLEANUP_SECONDS: Final = 30.0
_RETRY_SECONDS: Final = 1.0
"""Seconds after a failed deletion, before the next."""
_SPARE_BYTES: Final = 128 * 1024 * 1024
"""Bytes that the file may use beyond those that are kept, until the oldest records are deleted."""
_DELETE_BATCH: Final = 200
"""Records deleted in one job: more would delay calls that wait for their record."""


class AuditLog:
    """Records of tool calls in one SQLite file, which belongs to one process at a time."""

    def __init__(self, path: Path, *, writer: AuditWriter, keep: timedelta, keep_bytes: int) -> None:
        self._path = path
        self._writer = writer
        self._keep = keep
        self._keep_bytes = keep_bytes

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        path: Path,
        *,
        keep_days: float = 30,
        keep_bytes: int = 1024**3,
        spare_bytes: int = _SPARE_BYTES,
        cleanup_seconds: float = _CLEANUP_SECONDS,
    ) -> AsyncIterator[Self]:
        """Open the file, and end the records that an earlier process left unfinished.

        Deletes records every `cleanup_seconds` and after many writes: those older than `keep_days`, and while the file
        uses more than `keep_bytes` the oldest of the namespace that uses most. The file never gets larger than
        `keep_bytes` and `spare_bytes`: further writes fail. Raises sqlite3.Error, OSError.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = AuditWriter(path, max_bytes=keep_bytes + spare_bytes)
        audit = cls(path, writer=writer, keep=timedelta(days=keep_days), keep_bytes=keep_bytes)
        await writer.open()
        try:
            await audit.end_unfinished()
            cleanup = asyncio.create_task(audit._clean_up(cleanup_seconds), name="audit cleanup")
            try:
                yield audit
            finally:
                cleanup.cancel()
                await asyncio.wait({cleanup})
        finally:
            await writer.close()

    @property
    def failure(self) -> str:
        """Why no record can be written until the process is restarted; empty if records can be written."""
        return self._writer.failure

    async def end_unfinished(self) -> int:
        """End the records without an end as `unfinished`, and return their number."""
        unfinished: list[str] = await self._writer.submit(store.select_unfinished)
        error = "the broker ended during the call"
        for id in unfinished:
            await self.end_call(id, CallOutcome.UNFINISHED, error=error)
        return len(unfinished)

    async def load_usage(self) -> list[ExecutionUsage]:
        """Return what executions have used whose grants may still be valid."""
        found: list[ExecutionUsage] = await self._writer.submit(store.select_usage)
        return found

    async def close_execution(self, uid: str) -> None:
        """Store that an execution may make no more calls. Raises sqlite3.Error."""
        await self._writer.submit(lambda file: store.close_execution(file, uid))

    async def read_uncopied(self, limit: int) -> Sequence[Mapping[str, Any]]:
        """Return ended records that were not marked as copied, oldest first. Raises sqlite3.Error."""
        found: list[sqlite3.Row] = await self._writer.submit(lambda file: store.select_uncopied(file, limit))
        return cast(Sequence[Mapping[str, Any]], found)

    async def mark_copied(self, numbers: Sequence[int]) -> None:
        """Mark records as copied to the records. Raises sqlite3.Error."""
        await self._writer.submit(lambda file: store.mark_copied(file, numbers))

    def begin_call(self, record: AuditRecord, *, bytes_out: int = 0) -> "asyncio.Future[None]":
        """Write the record of a call. The call may travel only after the returned future is done.

        The future raises ValueError if there is a record of this id, and sqlite3.Error if it cannot be written.
        """
        row = record.to_row() | {"at": micro_time(now()), "bytes_out": bytes_out}
        return self._write("tool call started", store.insert_calls, row)

    def end_call(
        self,
        id: str,
        outcome: CallOutcome,
        *,
        milliseconds: float | None = None,
        bytes_in: int = 0,
        bytes_out: int = 0,
        error: str = "",
        approval: str | None = None,
        approved_by: str | None = None,
    ) -> "asyncio.Future[None]":
        """Write the end of a call. Nobody has to wait for it: a failure is logged, and the record stays unfinished.

        `bytes_in` went into the sandbox, `bytes_out` to the server; `error` must not contain arguments.
        """
        row = {
            "id": id,
            "ended": micro_time(now()),
            "outcome": outcome.value,
            "error": make_storable(error[:MAX_ERROR]),
            "milliseconds": milliseconds,
            "bytes_in": bytes_in,
            "bytes_out": bytes_out,
            "approval": approval,
            "approved_by": approved_by,
        }
        written = self._write("tool call ended", store.end_calls, row)
        written.add_done_callback(_log_failure)
        return written

    def record_denials(
        self, record: AuditRecord, outcome: CallOutcome, *, calls: int, first: datetime, last: datetime, error: str
    ) -> "asyncio.Future[None]":
        """Write one ended record of several denied calls. The future raises sqlite3.Error if it cannot be written."""
        row = record.to_row()
        row |= {"at": micro_time(first), "ended": micro_time(last), "outcome": outcome.value, "calls": calls}
        row["bytes_out"] = 0
        row["error"] = make_storable(error[:MAX_ERROR])
        return self._write("tool calls denied", store.insert_denials, row)

    def _write(self, event: str, write: store.RowWriter, row: dict[str, Any]) -> "asyncio.Future[None]":
        return self._writer.submit_row(write, row, on_written=lambda: log_line(event, row))

    async def find_records(
        self,
        *,
        namespace: str = "",
        caller: str = "",
        execution: str = "",
        tool: str = "",
        outcome: str = "",
        source: str = "",
        since: str = "",
        until: str = "",
        limit: int = 100,
        cursor: str = "",
    ) -> dict[str, Any]:
        """Return `{"items": [...], "next": cursor or None}`, newest first, with all writes submitted before.

        `tool` is SERVER.TOOL or SERVER; `source` is code or direct; `since` (inclusive) and `until` (exclusive) are
        RFC 3339 times. A call in progress has no outcome. Raises ValueError if a filter is invalid.
        """
        conditions: dict[str, Any] = {
            "namespace = ?": namespace,
            "caller = ?": caller,
            "execution = ?": execution,
            "outcome = ?": CallOutcome(outcome).value if outcome else "",
            "source = ?": _parse_source(source),
            "at >= ?": _parse_time(since, "since"),
            "at < ?": _parse_time(until, "until"),
            "number < ?": _parse_cursor(cursor),
        }
        server, _, name = tool.partition(".")
        conditions |= {"server = ?": server, "tool = ?": name}
        conditions = {condition: value for condition, value in conditions.items() if value}
        page = max(1, min(limit, _MAX_PAGE))
        await self._writer.submit(lambda file: None)
        rows = await asyncio.to_thread(store.select_records, self._path, conditions, page)
        items = [{wire: row[name] for name, wire in WIRE_NAMES.items()} for row in rows[:page]]
        return {"items": items, "next": str(rows[page - 1]["number"]) if len(rows) > page else None}

    async def delete_old_records(self) -> int:
        """Delete records that are too old or too many, run a checkpoint, and return the number of deleted records."""
        oldest, keep_bytes = micro_time(now() - self._keep), self._keep_bytes
        deleted = await self._delete_all(lambda file: store.delete_old(file, before=oldest, count=_DELETE_BATCH))
        deleted += await self._delete_all(
            lambda file: (
                store.delete_largest(file, count=_DELETE_BATCH) if store.measure_used_bytes(file) > keep_bytes else 0
            )
        )
        await self._writer.submit(store.delete_expired_usage)
        await asyncio.to_thread(store.run_checkpoint, self._path)
        return deleted

    async def _clean_up(self, seconds: float) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._writer.has_written_much.wait()
            self._writer.has_written_much.clear()
            try:
                await self.delete_old_records()
            except sqlite3.Error as error:
                log.warning("cannot delete old audit records: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _delete_all(self, delete_batch: Callable[[sqlite3.Connection], int]) -> int:
        total = 0
        while count := await self._writer.submit(delete_batch):
            total += count
        return total


def _log_failure(written: "asyncio.Future[None]") -> None:
    if not written.cancelled() and (error := written.exception()) is not None:
        log.warning("cannot write the end of a call to the audit log: %s", error)


def _parse_time(text: str, name: str) -> str:
    if not text:
        return ""
    try:
        moment = datetime.fromisoformat(text)
        return micro_time(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{name}: must be a time such as 2026-01-02T03:04:05Z") from error


def _parse_source(text: str) -> str:
    if text and text not in SOURCES:
        raise ValueError(f"source: must be {' or '.join(SOURCES)}")
    return text


def _parse_cursor(text: str) -> int:
    if text and not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ValueError("cursor: must be the `next` of an earlier answer")
    return int(text or 0)
