"""Events of an execution: their log, its mirror in the container's log, progress and tool calls."""

import asyncio
import contextlib
import json
import os
import re
import select
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mcp_exec_sandbox.protocol import PROGRESS_CHARACTERS, TOOL_MESSAGE_CHARACTERS
from mcp_exec_tools.text import shorten, shorten_line

BATCH_BYTES = 256 * 1024
"""Approximate size of the batches of lines that a reader gets."""
MAX_LINE = 1000
"""Characters of a line. With its prefix and in UTF-8 it has less than 4096 bytes, which a pipe takes as a whole."""
MAX_PROGRESS_EVENTS = 10_000
"""More than fit into an hour, at one each interval. Later ones are dropped, but the newest at the end."""
INTERVAL_SECONDS = 0.04
"""Time between two events: less than the runner's interval. Of the reports between them, the newest is kept."""
LONG_INTERVAL_SECONDS = 1.0
"""The same once half of the events are written: a run that reports so often goes on for long."""
MAX_NUMBER = 1 << 53
MAX_CALL_EVENTS = 30_000
"""Three per call, for the maximum number of calls of an execution. Later events are dropped."""
MAX_CALL_EVENT_CHARACTERS = 8 * 1024 * 1024
"""Maximum size of all these events together."""
MAX_COUNT = 1 << 53
_ID_CHARACTERS = 64
_NAME_CHARACTERS = 300
_KIND_CHARACTERS = 64
_APPROVAL_ID = re.compile(r"approval-[0-9a-f]{16}")
"""Form of the broker's ids. People paste them into a command."""


@dataclass(frozen=True, kw_only=True)
class EventBatch:
    """Lines for a reader. No lines follow the last batch."""

    lines: bytes
    is_last: bool


class EventLog:
    """Events of one run and the readers that follow them. `mirror` receives type and fields of each event."""

    def __init__(self, *, mirror: Callable[[str, dict[str, Any]], None] | None = None) -> None:
        self._mirror = mirror
        self._lines: list[bytes] = []
        self._ended = False
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def last_sequence(self) -> int:
        """The number of the newest event; 0 before the first."""
        return len(self._lines)

    @property
    def has_ended(self) -> bool:
        """Whether the last event is `end`."""
        return self._ended

    def append(self, kind: str, /, **fields: Any) -> None:
        """Add an event. An event of type `end` is the last: later ones are dropped."""
        if self._ended:
            return
        at = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        event = {"seq": len(self._lines) + 1, "at": at, "type": kind, **fields}
        text = json.dumps(event, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        self._lines.append(text.encode("utf-8", "replace") + b"\n")
        self._ended = kind == "end"
        if self._mirror is not None:
            self._mirror(kind, fields)
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def follow(self, first: int) -> AsyncIterator[EventBatch]:
        """Yield the lines from event `first` on until the end. The first batch comes at once and may be empty."""
        position = first - 1
        while True:
            lines = self._slice(position)
            position += len(lines)
            is_last = self._ended and position >= len(self._lines)
            yield EventBatch(lines=b"".join(lines), is_last=is_last)
            if is_last:
                return
            if position < len(self._lines):
                continue
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def _slice(self, position: int) -> list[bytes]:
        size, end = 0, position
        while end < len(self._lines) and size < BATCH_BYTES:
            size += len(self._lines[end])
            end += 1
        return self._lines[position:end]


class LogMirror:
    """Writes the texts of the events `stdout` and `stderr` to a file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._rests: dict[str, str] = {}
        """By stream, the last line as far as it was written."""
        self._dropped = 0

    def add(self, kind: str, fields: dict[str, Any]) -> None:
        """Add an event. `end` also writes lines without a line break."""
        if kind in ("stdout", "stderr"):
            self._add_text(kind, str(fields.get("text") or ""))
        elif kind == "end":
            for stream, rest in self._rests.items():
                self._write_line(stream, rest)
            self._rests.clear()

    def _add_text(self, stream: str, text: str) -> None:
        *lines, rest = (self._rests.pop(stream, "") + text).split("\n")
        for line in lines:
            self._write_line(stream, line)
        while len(rest) > MAX_LINE:
            self._write_line(stream, rest[:MAX_LINE])
            rest = rest[MAX_LINE:]
        if rest:
            self._rests[stream] = rest

    def _write_line(self, stream: str, line: str) -> None:
        text = escape(line)
        for start in range(0, max(1, len(text)), MAX_LINE):
            self._write(f"{stream} | {text[start : start + MAX_LINE]}")

    def _write(self, line: str) -> None:
        """Write a line, or drop it if nobody reads the log fast enough: the supervisor must not wait."""
        if self._dropped and self._put(f"({self._dropped} lines of output are not in this log)"):
            self._dropped = 0
        if self._dropped or not self._put(line):
            self._dropped += 1

    def _put(self, line: str) -> bool:
        data = line.encode("utf-8", "replace") + b"\n"
        if not any(event & select.POLLOUT for _, event in self._poll.poll(0)):
            return False
        try:
            os.write(self._descriptor, data)
        except OSError:
            return False
        return True


def escape(line: str) -> str:
    """Return a line with backslash escapes instead of characters that are not printable, except for tabs."""
    if line.isprintable():
        return line
    return "".join(
        character if character.isprintable() or character == "\t" else character.encode("unicode_escape").decode()
        for character in line
    )


class ProgressEvents:
    """Writer of the events `progress`."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._left = MAX_PROGRESS_EVENTS
        self._pending: dict[str, Any] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def add(self, message: dict[str, Any]) -> None:
        """Write an event now, or at the end of the interval. Drop it if the message is invalid."""
        done, total, text = (message.get(name) for name in ("done", "total", "text"))
        if not _is_number(done) or not (total is None or _is_number(total)) or not isinstance(text, str):
            return
        self._pending = {"done": done, "total": total, "text": shorten_line(text, PROGRESS_CHARACTERS)}
        if self._timer is None and self._left:
            self._write()
            self._begin_interval()

    def finish(self) -> None:
        """Write the newest report if it was not written."""
        if self._timer is not None:
            self._timer.cancel()
        self._write()

    def _end_interval(self) -> None:
        self._timer = None
        if self._pending is not None and self._left:
            self._write()
            self._begin_interval()

    def _begin_interval(self) -> None:
        seconds = INTERVAL_SECONDS if self._left > MAX_PROGRESS_EVENTS // 2 else LONG_INTERVAL_SECONDS
        self._timer = asyncio.get_running_loop().call_later(seconds, self._end_interval)

    def _write(self) -> None:
        if self._pending is not None:
            self._left -= 1
            self._log.append("progress", **self._pending)
            self._pending = None


def _is_number(value: Any) -> bool:
    # NaN is not less than any number, and math.isfinite raises for an integer beyond those of a float
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= MAX_NUMBER


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
