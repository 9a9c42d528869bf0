"""The audit log: the records of tool calls in a SQLite file, written before a call travels and again when it ends.

What survives which failure is described in docs/internals/broker.md.
"""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Self

from sqlalchemy import select

from mcp_exec_api.meta import micro_time, now
from mcp_exec_api.wire.tools import CallSource, ToolCallRecord
from mcp_exec_broker.core.access.quotas import ExecutionUsage
from mcp_exec_broker.core.calls.audit import WIRE_NAMES, CallAudit, Row
from mcp_exec_broker.core.errors import CallOutcome
from mcp_exec_broker.features.records.audit.file import (
    close_execution,
    delete_expired_usage,
    delete_largest,
    delete_old,
    end_calls,
    insert_calls,
    mark_copied,
    measure_used_bytes,
    run_checkpoint,
    select_records,
    select_uncopied,
    select_unfinished,
    select_usage,
)
from mcp_exec_broker.features.records.audit.process_lock import ProcessLock
from mcp_exec_broker.features.records.audit.writer import AuditWriter
from mcp_exec_broker.features.records.tables import AUDIT
from mcp_exec_common.broker.grants import MAX_GRANT_SECONDS

log = logging.getLogger(__name__)

_MAX_PAGE: Final = 1000
_CLEANUP_SECONDS: Final = 30.0
_RETRY_SECONDS: Final = 1.0
"""Seconds after a failed deletion, before the next."""
_SPARE_BYTES: Final = 128 * 1024 * 1024
"""Bytes that the file may use beyond those that are kept, until the oldest records are deleted."""
_DELETE_BATCH: Final = 200
"""Records deleted in one job: more would delay calls that wait for their record."""


class AuditLog(CallAudit):
    """Records of tool calls in one SQLite file.

    During a rollout, the broker before may still write to it, on the same node: its calls go on. A lock says when it
    has ended.
    """

    def __init__(self, path: Path, *, writer: AuditWriter, lock: ProcessLock, keep: timedelta, keep_bytes: int) -> None:
        self._path = path
        self._writer = writer
        self._lock = lock
        self._begun: set[str] = set()
        """Calls in progress that began before this process was the only one."""
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
        grace_seconds: float = 0,
    ) -> AsyncIterator[Self]:
        """Open the file, and end the records that an earlier process left unfinished: at once, or when it has ended.

        `grace_seconds` is the longest time that one may take which has no lock.

        Deletes records every `cleanup_seconds` and after many writes: those older than `keep_days`, and while the file
        uses more than `keep_bytes` the oldest of the namespace that uses most. The file never gets larger than
        `keep_bytes` and `spare_bytes`: further writes fail. Raises sqlite3.Error, OSError.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = AuditWriter(path, max_bytes=keep_bytes + spare_bytes)
        lock = ProcessLock(path.with_name(f"{path.name}.lock"), grace_seconds=grace_seconds)
        audit = cls(path, writer=writer, lock=lock, keep=timedelta(days=keep_days), keep_bytes=keep_bytes)
        try:
            await writer.open()
            await audit.end_unfinished()
            cleanup = asyncio.create_task(audit._clean_up(cleanup_seconds), name="audit cleanup")
            try:
                yield audit
            finally:
                cleanup.cancel()
                await asyncio.wait({cleanup})
        finally:
            await writer.close()
            lock.close()

    @property
    def failure(self) -> str:
        """Why no record can be written until the process is restarted; empty if records can be written."""
        return self._writer.failure

    async def end_unfinished(self) -> int:
        """End the records of earlier processes without an end as `unfinished`, once, and return their number.

        Ends none while one of these processes lives.
        """
        if self._lock.is_alone or not self._lock.try_acquire():
            return 0
        found: list[str] = await self._writer.submit(select_unfinished)
        unfinished = [id for id in found if id not in self._begun]
        self._begun.clear()
        error = "the broker ended during the call"
        for id in unfinished:
            await self.end_call(id, CallOutcome.UNFINISHED, error=error)
        return len(unfinished)

    async def load_usage(self) -> list[ExecutionUsage]:
        """Return what executions have used whose grants may still be valid."""
        found: list[ExecutionUsage] = await self._writer.submit(select_usage)
        return found

    async def close_execution(self, uid: str, *, grant_seconds: int = MAX_GRANT_SECONDS) -> None:
        """Store that an execution may make no more calls, as `ExecutionQuotas` does. Raises sqlite3.Error."""
        await self._writer.submit(lambda file: close_execution(file, uid, grant_seconds=grant_seconds))

    async def read_uncopied(self, limit: int) -> Sequence[Row]:
        """Return ended records that were not marked as copied, oldest first. Raises sqlite3.Error."""
        found: list[Row] = await self._writer.submit(lambda file: select_uncopied(file, limit))
        return found

    async def mark_copied(self, numbers: Sequence[int]) -> None:
        """Mark records as copied to the records. Raises sqlite3.Error."""
        await self._writer.submit(lambda file: mark_copied(file, numbers))

    def begin_call(self, record: ToolCallRecord) -> "asyncio.Future[None]":
        """Write the record of a call, as CallAudit does."""
        if not self._lock.is_alone:
            self._begun.add(record.id)
        return super().begin_call(record)

    def _store_start(self, row: Row, on_stored: Callable[[], None]) -> "asyncio.Future[None]":
        return self._writer.submit_row(insert_calls, row, on_written=on_stored)

    def _store_end(self, row: Row, on_stored: Callable[[], None]) -> "asyncio.Future[None]":
        self._begun.discard(row["id"])
        written = self._writer.submit_row(end_calls, row, on_written=on_stored)
        written.add_done_callback(_log_failure)
        return written

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
        server, _, name = tool.partition(".")
        equal = {"namespace": namespace, "caller": caller, "execution": execution, "server": server, "tool": name}
        equal |= {"outcome": CallOutcome(outcome).value if outcome else "", "source": _parse_source(source)}
        conditions = [AUDIT.c[column] == value for column, value in equal.items() if value]
        if since:
            conditions.append(AUDIT.c.at >= _parse_time(since, "since"))
        if until:
            conditions.append(AUDIT.c.at < _parse_time(until, "until"))
        if cursor:
            conditions.append(AUDIT.c.number < _parse_cursor(cursor))
        page = max(1, min(limit, _MAX_PAGE))
        statement = select(AUDIT).where(*conditions).order_by(AUDIT.c.number.desc()).limit(page + 1)
        await self._writer.submit(lambda file: None)
        rows = await asyncio.to_thread(select_records, self._path, statement)
        items = [{wire: row[name] for name, wire in WIRE_NAMES.items()} for row in rows[:page]]
        return {"items": items, "next": str(rows[page - 1]["number"]) if len(rows) > page else None}

    async def delete_old_records(self) -> int:
        """Delete records that are too old or too many, run a checkpoint, and return the number of deleted records."""
        oldest, keep_bytes = micro_time(now() - self._keep), self._keep_bytes
        deleted = await self._delete_all(lambda file: delete_old(file, before=oldest, count=_DELETE_BATCH))
        deleted += await self._delete_all(
            lambda file: delete_largest(file, count=_DELETE_BATCH) if measure_used_bytes(file) > keep_bytes else 0
        )
        await self._writer.submit(delete_expired_usage)
        await asyncio.to_thread(run_checkpoint, self._path)
        return deleted

    async def _clean_up(self, seconds: float) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._writer.has_written_much.wait()
            self._writer.has_written_much.clear()
            try:
                await self.end_unfinished()
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
    try:
        moment = datetime.fromisoformat(text)
        return micro_time(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{name}: must be a time such as 2026-01-02T03:04:05Z") from error


def _parse_source(text: str) -> str:
    sources = [source.value for source in CallSource]
    if text and text not in sources:
        raise ValueError(f"source: must be {' or '.join(sources)}")
    return text


def _parse_cursor(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ValueError("cursor: must be the `next` of an earlier answer")
    return int(text)
