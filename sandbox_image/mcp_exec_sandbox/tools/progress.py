"""Progress that code reports: `progress(3, 10, "read page 3")`.

Any number of reports costs little: some are sent at once, then one each interval, always the newest.
"""

import contextlib
import math
import threading
import time
from collections.abc import Callable
from typing import Any

from mcp_exec_sandbox.protocol import PROGRESS_CHARACTERS
from mcp_exec_tools.text import shorten_line

_INTERVAL_SECONDS = 0.05
_BURST = 20
"""Reports that are sent at once, before the interval applies."""

Emit = Callable[[dict[str, Any]], None]
"""Function that sends an event to the supervisor."""


class ProgressReporter:
    """Sender of progress events, bounded in rate. The newest report is never dropped."""

    def __init__(self, emit: Emit, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._emit = emit
        self._clock = clock
        self._lock = threading.RLock()
        self._tokens = float(_BURST)
        self._refilled = clock()
        self._pending: dict[str, Any] | None = None
        self._timer: threading.Timer | None = None

    def report(self, done: float, total: float | None, text: str) -> None:
        """Send a report, or keep it until the interval is over."""
        event = {
            "type": "progress",
            "done": _to_number("done", done),
            "total": None if total is None else _to_number("total", total),
            "text": shorten_line(str(text), PROGRESS_CHARACTERS),
        }
        with self._lock:
            self._pending = event
            now = self._clock()
            self._tokens = min(self._tokens + (now - self._refilled) / _INTERVAL_SECONDS, float(_BURST))
            self._refilled = now
            if self._tokens >= 1:
                self._tokens -= 1
                self.flush()
            elif self._timer is None:
                self._start_timer()

    def flush(self) -> None:
        """Send the newest report if it was not sent."""
        with self._lock:
            self._timer = None
            event, self._pending = self._pending, None
            if event is not None:
                self._emit(event)

    def _start_timer(self) -> None:
        timer = threading.Timer(_INTERVAL_SECONDS, self.flush)
        timer.daemon = True
        # at the limit of threads, the next report or the end of the code sends it
        with contextlib.suppress(RuntimeError):
            timer.start()
            self._timer = timer


def _to_number(name: str, value: Any) -> int | float:
    """Return the value as a number that JSON has, also if it is a Decimal or a number of numpy."""
    try:
        number = value if type(value) is int else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, str) or not abs(number) <= 1 << 53:
        given = "one beyond 2**53" if isinstance(value, int) else repr(str(value)[:50])
        raise TypeError(f"progress(done, total=None, text=''): {name} must be a number, not {given}")
    return number


_current: list[ProgressReporter] = []


def set_reporter(reporter: ProgressReporter) -> None:
    """Make `reporter` the one of this process."""
    _current[:] = [reporter]


def progress(done: float, total: float | None = None, text: str = "") -> None:
    """Report how far the code is. Who follows the execution sees it at once.

    Args:
        done: what is done, in any unit. It should grow.
        total: what is to be done in all, in the same unit; None if it is not known.
        text: what the code does now, at most 200 characters.
    """
    if _current:
        _current[0].report(done, total, text)
