"""The audit log: one record of each tool call, written before the call travels and again when it ends.

Records go to a SQLite file, for queries, and to the log `mcp_exec.audit`, for log collectors. What survives which
failure is described in docs/internals/broker.md.
"""

import asyncio
import hashlib
import json
import logging
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Sequence, Set
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Self
from uuid import uuid4

from sqlalchemy import select

from mcp_exec_api.meta import micro_time, now
from mcp_exec_api.wire.tools import CallSource, ToolCallRecord
from mcp_exec_broker.core.access.quotas import ExecutionUsage
from mcp_exec_broker.core.errors import CallOutcome
from mcp_exec_broker.features.records.audit.file import (
    Row,
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
from mcp_exec_common.broker.grants import MAX_GRANT_SECONDS, CallRights, DirectGrant, Grant

audit_lines = logging.getLogger("mcp_exec.audit")

_MAX_ERROR: Final = 500
"""Characters of an error."""
_WIRE_NAMES: Final = {name: field.alias or name for name, field in ToolCallRecord.model_fields.items()}
"""Names of the record's fields in answers and log lines."""
_WHEN_ENDED: Final = frozenset({"ended_at", "outcome", "error", "calls"})
_ONLY_AT_END: Final = frozenset({"duration_ms", "bytes_in", "approval", "approved_by"})


def build_record(**fields: Any) -> ToolCallRecord:
    """Return the record of a call that begins now, with an id of its own. Lone surrogates in texts are replaced."""
    storable = {name: make_storable(value) for name, value in fields.items()}
    return ToolCallRecord(**({"id": str(uuid4()), "at": now()} | storable))


def describe_rights(grant: CallRights) -> dict[str, Any]:
    """Return the fields of a record that the grant of its call determines."""
    caller = {"namespace": grant.namespace, "pool": grant.pool, "caller": grant.caller, "user": grant.user}
    if isinstance(grant, DirectGrant):
        return caller | {"source": CallSource.DIRECT, "conversation": grant.conversation}
    return caller | ({"execution": grant.name, "uid": grant.execution} if isinstance(grant, Grant) else {})


def compute_digest(arguments: Any) -> str:
    """Return `sha256:` and the digest of the arguments as JSON with sorted keys, as the code sent them."""
    return compute_digest_and_size(arguments)[0]


def compute_digest_and_size(arguments: Any) -> tuple[str, int]:
    """Return the digest of the arguments, and the bytes of their JSON."""
    text = json.dumps(arguments, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest(), len(text)


def make_storable(value: Any) -> Any:
    """Replace lone surrogates in a text: JSON may contain them, but neither SQLite nor a log can store them."""
    is_text = isinstance(value, str) and not value.isascii()
    return value.encode("utf-8", "replace").decode() if is_text else value


def write_to_stdout() -> None:
    """Write audit lines as JSON to standard output, separate from the process's log."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("%(message)s"))
    audit_lines.handlers = [handler]
    audit_lines.setLevel(logging.INFO)
    audit_lines.propagate = False


def log_line(event: str, row: Row, *, hidden: Set[str] = frozenset()) -> None:
    """Write the log line of one event, without the hidden fields."""
    if audit_lines.isEnabledFor(logging.INFO):
        fields = {_WIRE_NAMES[name]: value for name, value in row.items() if name not in hidden}
        audit_lines.info(json.dumps({"event": event, **fields}, ensure_ascii=False))


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
        """Write the record of a call. The call may travel only after the returned future is done.

        The future raises ValueError if there is a record of this id, and sqlite3.Error if it cannot be written.
        """
        if not self._lock.is_alone:
            self._begun.add(record.id)
        return self._insert("tool call started", record, hidden=_WHEN_ENDED | _ONLY_AT_END)

    def record_denials(self, record: ToolCallRecord) -> "asyncio.Future[None]":
        """Write one ended record of several denied calls. The future raises sqlite3.Error if it cannot be written."""
        return self._insert("tool calls denied", record, hidden=_ONLY_AT_END)

    def _insert(self, event: str, record: ToolCallRecord, *, hidden: Set[str]) -> "asyncio.Future[None]":
        # vars: pydantic's own iteration takes 40 us
        row = {**vars(record), "at": micro_time(record.at), "error": record.error[:_MAX_ERROR]}
        if record.ended_at is not None:
            row["ended_at"] = micro_time(record.ended_at)
        return self._writer.submit_row(insert_calls, row, on_written=lambda: log_line(event, row, hidden=hidden))

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
            "ended_at": micro_time(now()),
            "outcome": outcome.value,
            "error": make_storable(error[:_MAX_ERROR]),
            "duration_ms": milliseconds,
            "bytes_in": bytes_in,
            "bytes_out": bytes_out,
            "approval": approval,
            "approved_by": approved_by,
        }
        self._begun.discard(id)
        written = self._writer.submit_row(end_calls, row, on_written=lambda: log_line("tool call ended", row))
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
        items = [{wire: row[name] for name, wire in _WIRE_NAMES.items()} for row in rows[:page]]
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
