"""Event log of the run: numbered lines of JSON that any number of readers follow from any number on.

The log lives as long as the pod. Its writers bound its size: output and result are bounded, and `output.OutputStream`
and `tool_events.ToolCallEvents` bound the number of events.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

BATCH_BYTES = 256 * 1024
"""Approximate size of the batches of lines that a reader gets."""


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
