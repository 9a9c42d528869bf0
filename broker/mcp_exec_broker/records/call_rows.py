"""Records of tool calls, from their entries in the audit log."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from mcp_exec_broker.records.tables import CALLS

_LENGTHS: Final = {name: getattr(column.type, "length", None) for name, column in CALLS.columns.items()}


def build_call(entry: Mapping[str, Any]) -> dict[str, object]:
    """Return the row of an ended call, or of several calls that were denied together."""
    milliseconds = entry["milliseconds"]
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
