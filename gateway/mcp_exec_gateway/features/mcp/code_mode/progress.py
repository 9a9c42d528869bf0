"""Progress notifications of a run: the lines that it prints, and what it reports by `progress(done, total, text)`.

A notification's progress has to be more than the one before, in every revision. Notifications without a number of
their own count by ones. If the code may report numbers, they add the smallest step instead, as reports that go back do,
so that reports keep their numbers. They have the last total, which grows with the progress. A run that says nothing for
long has a heartbeat, because clients that wait for progress give up without it.
"""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_api.code_execution import Phase
from mcp_exec_gateway.core.events.follower import EventFrame, StreamPosition
from mcp_exec_gateway.features.mcp.transport.response import Exchange

_INTERVAL_SECONDS: Final = 0.05
"""Time between notifications; what is reported between them is merged."""
_HEARTBEAT_SECONDS: Final = 15.0
"""Longest time without a notification; clients give up after 30 seconds or more."""
_STEP: Final = 1e-6
_REPORTING: Final = ("progress", "skills")
"""Names without which code makes no reports: the function, and the package whose skills may call it."""
_MAX_LINES: Final = 1000
"""Characters of printed lines in one notification."""


def may_report(code: str) -> bool:
    """Return whether the code may report numbers of its own. Code that is not known, as a skill's, may."""
    return not code or any(name in code for name in _REPORTING)


@dataclass(kw_only=True)
class ProgressRelay:
    """Turns events of a run into notifications of one request."""

    exchange: Exchange
    format_position: Callable[[StreamPosition], str | None] = lambda position: None
    """Returns the id of an event. A client that sends it resumes at this position."""
    position: StreamPosition = field(default_factory=StreamPosition)
    """Position after the last event that was read."""
    may_report: bool = True
    """Whether the code may report numbers of its own."""
    interval_seconds: float = _INTERVAL_SECONDS
    heartbeat_seconds: float = _HEARTBEAT_SECONDS
    _last: float = field(default=0.0, init=False)
    _total: float | None = field(default=None, init=False)
    """The total of the last report, which lines and heartbeats keep."""
    _waits: bool = field(default=False, init=False)
    """Whether the run waits for a pod."""
    _sent_at: float = field(default_factory=time.monotonic, init=False)
    _lines: str = field(default="", init=False)
    _report: tuple[float, float | None, str] | None = field(default=None, init=False)
    _wakeup: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _closed: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def relay(self, frames: AsyncGenerator[EventFrame, None]) -> None:
        """Send notifications until the frames end."""
        sending = asyncio.create_task(self._send())
        try:
            async with aclosing(frames):
                async for frame in frames:
                    self._merge(frame)
            self._closed.set()
            self.changed()
            await sending
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    def changed(self) -> None:
        """Send soon."""
        self._wakeup.set()

    async def beat(self) -> None:
        """Send a notification whenever none was sent for long, until the task is cancelled."""
        started = time.monotonic()
        while True:
            silent = time.monotonic() - self._sent_at
            if silent < self.heartbeat_seconds:
                await asyncio.sleep(self.heartbeat_seconds - silent)
                continue
            state = "waiting for a pod" if self._waits else "running"
            await self._notify(self._last, f"still {state} after {time.monotonic() - started:.0f} s")

    def _merge(self, frame: EventFrame) -> None:
        self.position = frame.position
        if frame.type == "status":
            self._waits = frame.fields.get("phase") == Phase.PENDING
        if frame.type == "stdout":
            self._lines = (self._lines + frame.fields["text"])[-2 * _MAX_LINES :]
        elif frame.type == "progress":
            fields = frame.fields
            self._report = (fields["done"], fields.get("total"), fields.get("text") or "")
        else:
            return
        self.changed()

    async def _send(self) -> None:
        while not (self._closed.is_set() and not self._has_news):
            await self._wakeup.wait()
            self._wakeup.clear()
            if self._lines:
                lines, self._lines = self._lines, ""
                await self._notify(self._last, _cut_lines(lines))
            if self._report is not None:
                (done, self._total, text), self._report = self._report, None
                await self._notify(done, text or None)
            try:
                async with asyncio.timeout(self.interval_seconds):
                    await self._closed.wait()
            except TimeoutError:
                continue

    async def _notify(self, progress: float, message: str | None) -> None:
        self._sent_at = time.monotonic()
        event_id = self.format_position(self.position)
        progress = self._advance(progress)
        total = None if self._total is None else max(self._total, progress)
        await self.exchange.progress(progress, total, message, event_id=event_id)

    @property
    def _has_news(self) -> bool:
        return bool(self._lines) or self._report is not None

    def _advance(self, value: float) -> float:
        step = _STEP if self.may_report else 1
        self._last = value if value > self._last else max(self._last + step, math.nextafter(self._last, math.inf))
        return self._last


def _cut_lines(text: str) -> str:
    text = text.strip("\n")
    return text if len(text) <= _MAX_LINES else "…" + text[-_MAX_LINES:]
