"""Tool calls as events of the run. The runner's messages about them are hostile input: checked and bounded."""

import contextlib
import re
from datetime import datetime
from typing import Any

from mcp_exec_sandbox.protocol import TOOL_MESSAGE_CHARACTERS
from mcp_exec_sandbox.supervisor.execution.event_log import EventLog
from mcp_exec_tools.text import shorten

MAX_CALL_EVENTS = 30_000
"""Three per call, for the maximum number of calls of an execution. Later events are dropped."""
MAX_CALL_EVENT_CHARACTERS = 8 * 1024 * 1024
"""Maximum size of all these events together."""
MAX_COUNT = 1 << 53
_ID_CHARACTERS = 64
_NAME_CHARACTERS = 300
_KIND_CHARACTERS = 64
_APPROVAL_ID = re.compile(r"approval-[0-9a-f]{16}")
"""What the broker makes. People paste it into a command."""


class ToolCallEvents:
    """Writer of the events `tool_call`, `tool_result` and `approval`."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._events_left = MAX_CALL_EVENTS
        self._characters_left = MAX_CALL_EVENT_CHARACTERS

    def add(self, kind: str, message: dict[str, Any]) -> bool:
        """Write one event. Return False, without an event, if the message is invalid or the bounds are reached."""
        fields = _parse_fields(kind, message)
        if fields is None or not self._events_left:
            return False
        size = sum(len(value) for value in fields.values() if isinstance(value, str))
        if size > self._characters_left:
            return False
        self._events_left -= 1
        self._characters_left -= size
        self._log.append(kind, **fields)
        return True


def parse_written(message: dict[str, Any]) -> dict[int, int]:
    """Return the bytes that the runner had written to each stream when it sent the message."""
    written = message.get("written")
    if not isinstance(written, list) or len(written) != 2:
        return {}
    return {stream: _parse_count(total) for stream, total in zip((1, 2), written, strict=True)}


def _parse_fields(kind: str, message: dict[str, Any]) -> dict[str, Any] | None:
    identifier, tool = message.get("id"), message.get("tool")
    if not isinstance(identifier, str) or not isinstance(tool, str):
        return None
    if kind == "approval" and _APPROVAL_ID.fullmatch(identifier) is None:
        return None
    fields: dict[str, Any] = {"id": identifier[:_ID_CHARACTERS], "tool": tool[:_NAME_CHARACTERS]}
    if kind == "approval":
        return fields | {"expiresAt": _parse_time(message.get("expiresAt"))}
    if kind == "tool_call":
        return fields | {"argumentBytes": _parse_count(message.get("argumentBytes"))}
    error_kind, text = message.get("kind"), message.get("message")
    fields |= {
        "ok": message.get("ok") is True,
        "kind": error_kind[:_KIND_CHARACTERS] if isinstance(error_kind, str) else None,
    }
    if isinstance(text, str):
        fields["message"] = shorten(text, TOOL_MESSAGE_CHARACTERS)
    milliseconds = message.get("ms")
    valid = isinstance(milliseconds, (int, float)) and 0 <= milliseconds < MAX_COUNT
    return fields | {"bytes": _parse_count(message.get("bytes")), "ms": milliseconds if valid else 0}


def _parse_time(value: object) -> str | None:
    """Return a time with a zone, or None. Readers would take any other value for a broken stream."""
    with contextlib.suppress(ValueError):
        if isinstance(value, str) and datetime.fromisoformat(value[:_KIND_CHARACTERS]).tzinfo is not None:
            return value[:_KIND_CHARACTERS]
    return None


def _parse_count(value: object) -> int:
    return value if type(value) is int and 0 <= value < MAX_COUNT else 0
