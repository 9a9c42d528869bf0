"""What a broker does with its records all the time: copy calls from the audit log, delete what is old."""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from prometheus_client import CollectorRegistry

from mcp_exec_broker.features.records.audit.log import AuditLog
from mcp_exec_broker.features.records.store import RecordStore, RecordsUnavailable
from mcp_exec_broker.features.records.tables import CALLS
from mcp_exec_common.process.metrics import MetricsBase

log = logging.getLogger(__name__)

_BATCH: Final = 500
_COPY_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 5.0
_LAST_SECONDS: Final = 3.0
_DELETE_SECONDS: Final = 60.0
_DAY_MICROSECONDS: Final = 24 * 3600 * 1_000_000
_LENGTHS: Final = {name: getattr(column.type, "length", None) for name, column in CALLS.columns.items()}


class RecordMetrics(MetricsBase):
    """Metrics of the records' maintenance."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        super().__init__("mcp_exec_broker_records_", registry)
        self.failures = self.counter(
            "failures_total", "Failed attempts to copy tool calls to the records, and to delete old records."
        )


@dataclass(kw_only=True, eq=False)
class RecordMaintenance:
    """Copies calls at least once, so that each has one record, and deletes old records."""

    store: RecordStore
    calls: AuditLog
    keep_days: float
    metrics: RecordMetrics

    async def copy_calls(self) -> int:
        """Copy the next calls and return their number. Raises RecordsUnavailable, sqlite3.Error."""
        entries = await self.calls.read_uncopied(_BATCH)
        if not entries:
            return 0
        result = await self.store.add("calls", [build_call(entry) for entry in entries])
        for reason in result.refused[:3]:
            log.error("a call cannot be recorded: %s", reason)
        await self.calls.mark_copied([entry["number"] for entry in entries])
        return len(entries)

    async def copy_forever(self) -> None:
        """Copy calls about a second after their end. A failure is repeated until it is over."""
        while True:
            try:
                pause = 0.0 if await self.copy_calls() == _BATCH else _COPY_SECONDS
            except (RecordsUnavailable, sqlite3.Error) as error:
                self.metrics.failures.inc()
                log.warning("cannot record tool calls, and tries again: %s", error)
                pause = _RETRY_SECONDS
            await asyncio.sleep(pause)

    async def copy_the_rest(self) -> None:
        """Copy the calls that ended last. What cannot be copied now is copied after the next start."""
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                while await self.copy_calls() == _BATCH:
                    pass
        except (TimeoutError, RecordsUnavailable, sqlite3.Error) as error:
            log.warning("cannot record the last tool calls before the next start: %s", error)

    async def delete_forever(self) -> None:
        """Delete records every minute: those older than `keep_days`, and those beyond the bytes that a file keeps."""
        while True:
            try:
                before = time.time_ns() // 1000 - int(self.keep_days * _DAY_MICROSECONDS)
                deleted = await self.store.delete_older_than(before)
                deleted += await self.store.delete_oldest()
                if deleted:
                    log.info("deleted %d old records", deleted)
            except RecordsUnavailable as error:
                self.metrics.failures.inc()
                log.warning("cannot delete old records, and tries again: %s", error)
            await asyncio.sleep(_DELETE_SECONDS)


def build_call(entry: Mapping[str, Any]) -> dict[str, object]:
    """Return the row of an ended call, or of several calls that were denied together."""
    milliseconds = entry["duration_ms"]
    row = {
        "id": entry["id"],
        "execution_uid": entry["uid"] or None,
        "namespace": entry["namespace"],
        "caller": entry["caller"],
        "user": entry["user"],
        "conversation": entry["conversation"],
        "mode": entry["source"],
        "server": entry["server"],
        "tool": entry["tool"],
        "outcome": entry["outcome"],
        "reason": entry["error"] or None,
        "calls": entry["calls"],
        "started_at": _read_time(entry["at"]),
        "duration_ms": None if milliseconds is None else round(milliseconds),
        "argument_bytes": entry["bytes_out"],
        "result_bytes": entry["bytes_in"],
    }
    return {name: _shorten(name, value) for name, value in row.items()}


def _shorten(column: str, value: object) -> object:
    return value.replace("\0", "\ufffd")[: _LENGTHS[column]] if isinstance(value, str) else value


def _read_time(text: str) -> int:
    """Return microseconds since 1970."""
    return round(datetime.fromisoformat(text).timestamp() * 1_000_000)
