"""Tool calls as events of the run. What the runner says of them is hostile input: checked, and bounded in number."""

import contextlib
from datetime import datetime
from typing import Any

from mcp_exec_sandbox.supervisor.event_log import EventLog

MAX_CALL_EVENTS = 30_000
"""Three a call, for the most calls that an execution may be allowed. Later ones are left out."""
MAX_CALL_EVENT_CHARACTERS = 8 * 1024 * 1024
"""Of all of them together."""
MAX_COUNT = 1 << 53
_ID_CHARACTERS = 64
_NAME_CHARACTERS = 300
_MESSAGE_CHARACTERS = 1000
_KIND_CHARACTERS = 64


class CallEvents:
    """Writes `tool_call`, `tool_result` and `approval` to the log of the run."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._left = MAX_CALL_EVENTS
        self._room = MAX_CALL_EVENT_CHARACTERS

    def add(self, kind: str, message: dict[str, Any]) -> None:
        """Write one event, unless it is none or there have been too many."""
        fields = _fields(kind, message)
        if fields is None or not self._left:
            return
        size = sum(len(value) for value in fields.values() if isinstance(value, str))
        if size > self._room:
            return
        self._left -= 1
        self._room -= size
        self._log.append(kind, **fields)


def written_of(message: dict[str, Any]) -> dict[int, int]:
    """How much the runner had written to its streams when it sent the message."""
    written = message.get("written")
    if not isinstance(written, list) or len(written) != 2:
        return {}
    return {stream: _count(total) for stream, total in zip((1, 2), written, strict=True)}


def _fields(kind: str, message: dict[str, Any]) -> dict[str, Any] | None:
    identifier, tool = message.get("id"), message.get("tool")
    if not isinstance(identifier, str) or not isinstance(tool, str):
        return None
    fields: dict[str, Any] = {"id": identifier[:_ID_CHARACTERS], "tool": tool[:_NAME_CHARACTERS]}
    if kind == "approval":
        return fields | {"expiresAt": _time(message.get("expiresAt"))}
    if kind == "tool_call":
        return fields | {"argumentBytes": _count(message.get("argumentBytes"))}
    fields |= {"ok": message.get("ok") is True, "kind": _text(message.get("kind"), _KIND_CHARACTERS)}
    if (said := _text(message.get("message"), _MESSAGE_CHARACTERS)) is not None:
        fields["message"] = said
    milliseconds = message.get("ms")
    known = isinstance(milliseconds, (int, float)) and 0 <= milliseconds < MAX_COUNT
    return fields | {"bytes": _count(message.get("bytes")), "ms": milliseconds if known else 0}


def _text(value: object, limit: int) -> str | None:
    return value[:limit] if isinstance(value, str) else None


def _time(value: object) -> str | None:
    """A time with a zone, or None: readers take others for a broken stream."""
    with contextlib.suppress(ValueError):
        if isinstance(value, str) and datetime.fromisoformat(value[:_KIND_CHARACTERS]).tzinfo is not None:
            return value[:_KIND_CHARACTERS]
    return None


def _count(value: object) -> int:
    return value if type(value) is int and 0 <= value < MAX_COUNT else 0
