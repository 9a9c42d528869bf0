"""The event log of the run: numbered lines of JSON that any number of readers follow from any number on.

The log is kept until the pod is gone. Its size is bounded by what writes to it: output and result are bounded, and
`stream.OutputStream` bounds the number of events.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

BATCH_BYTES = 256 * 1024
"""Lines are handed to a reader in batches of about this size."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Some lines for a reader; after the last batch there is nothing more to come."""

    lines: bytes
    is_last: bool


class EventLog:
    """Appends events and lets readers follow them."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._ended = False
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def last_sequence(self) -> int:
        """The number of the newest event; 0 before the first."""
        return len(self._lines)

    def append(self, kind: str, /, **fields: Any) -> None:
        """Add an event. The one of type `end` is the last."""
        at = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        event = {"seq": len(self._lines) + 1, "at": at, "type": kind, **fields}
        text = json.dumps(event, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        self._lines.append(text.encode("utf-8", "replace") + b"\n")
        self._ended = kind == "end"
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def follow(self, first: int) -> AsyncIterator[Batch]:
        """Lines from event `first` on until the end; what is there comes at once, and it may be nothing."""
        position = first - 1
        while True:
            lines = self._take(position)
            position += len(lines)
            is_last = self._ended and position >= len(self._lines)
            yield Batch(lines=b"".join(lines), is_last=is_last)
            if is_last:
                return
            if position < len(self._lines):
                continue
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter

    def _take(self, position: int) -> list[bytes]:
        size, end = 0, position
        while end < len(self._lines) and size < BATCH_BYTES:
            size += len(self._lines[end])
            end += 1
        return self._lines[position:end]
