"""The audit of tool calls: one record each, and one log line of its beginning and of its end.

Log lines go to the log `mcp_exec.audit`, for log collectors.
"""

import asyncio
import hashlib
import json
import logging
import sys
from collections.abc import Callable, Mapping, Set
from typing import Any, Final
from uuid import uuid4

from mcp_exec_api.meta import micro_time, now
from mcp_exec_api.wire.tools import CallSource, ToolCallRecord
from mcp_exec_broker.core.access.quotas import ExecutionUsage
from mcp_exec_broker.core.errors import CallOutcome
from mcp_exec_common.broker.grants import CallRights, DirectGrant, Grant

audit_lines = logging.getLogger("mcp_exec.audit")

_MAX_ERROR: Final = 500
"""Characters of an error."""
WIRE_NAMES: Final = {name: field.alias or name for name, field in ToolCallRecord.model_fields.items()}
"""Names of the record's fields in answers and log lines."""
_WHEN_ENDED: Final = frozenset({"ended_at", "outcome", "error", "calls"})
_ONLY_AT_END: Final = frozenset({"duration_ms", "bytes_in", "approval", "approved_by"})

Row = Mapping[str, Any]
"""A record by its fields, those of `ToolCallRecord`, with times as texts."""


class CallAudit:
    """Audit that writes log lines only. A feature overrides `_store_start` and `_store_end` to store records first."""

    def begin_call(self, record: ToolCallRecord) -> "asyncio.Future[None]":
        """Write the record of a call. The call may travel only after the returned future is done.

        The future raises ValueError if there is a record of this id, and sqlite3.Error if it cannot be written.
        """
        return self._start("tool call started", record, hidden=_WHEN_ENDED | _ONLY_AT_END)

    def record_denials(self, record: ToolCallRecord) -> "asyncio.Future[None]":
        """Write one ended record of several denied calls. The future raises sqlite3.Error if it cannot be written."""
        return self._start("tool calls denied", record, hidden=_ONLY_AT_END)

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
        return self._store_end(row, lambda: _log_line("tool call ended", row))

    async def load_usage(self) -> list[ExecutionUsage]:
        """Return what executions have used whose grants may still be valid. Raises sqlite3.Error."""
        return []

    def _start(self, event: str, record: ToolCallRecord, *, hidden: Set[str]) -> "asyncio.Future[None]":
        # vars: pydantic's own iteration takes 40 us
        row = {**vars(record), "at": micro_time(record.at), "error": record.error[:_MAX_ERROR]}
        if record.ended_at is not None:
            row["ended_at"] = micro_time(record.ended_at)
        return self._store_start(row, lambda: _log_line(event, row, hidden=hidden))

    def _store_start(self, row: Row, on_stored: Callable[[], None]) -> "asyncio.Future[None]":
        """Store a new record, and call `on_stored` once it is durable."""
        return _report_stored(on_stored)

    def _store_end(self, row: Row, on_stored: Callable[[], None]) -> "asyncio.Future[None]":
        """Store the end of a record, and call `on_stored` once it is durable."""
        return _report_stored(on_stored)


def _report_stored(on_stored: Callable[[], None]) -> "asyncio.Future[None]":
    on_stored()
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done


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


def _log_line(event: str, row: Row, *, hidden: Set[str] = frozenset()) -> None:
    """Write the log line of one event, without the hidden fields."""
    if audit_lines.isEnabledFor(logging.INFO):
        fields = {WIRE_NAMES[name]: value for name, value in row.items() if name not in hidden}
        audit_lines.info(json.dumps({"event": event, **fields}, ensure_ascii=False))
