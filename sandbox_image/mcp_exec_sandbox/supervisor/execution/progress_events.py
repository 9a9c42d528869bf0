"""Progress as events of the run. The runner's messages about it are hostile input: checked, and bounded in rate."""

import asyncio
from typing import Any

from mcp_exec_sandbox.protocol import PROGRESS_CHARACTERS
from mcp_exec_sandbox.supervisor.execution.event_log import EventLog
from mcp_exec_tools.text import shorten_line

MAX_PROGRESS_EVENTS = 10_000
"""More than fit into the longest run, at one each interval. Later ones are dropped, but the newest at the end."""
INTERVAL_SECONDS = 0.04
"""Time between two events: less than the runner's interval. Of the reports between them, the newest is kept."""
MAX_NUMBER = 1 << 53


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
            self._timer = asyncio.get_running_loop().call_later(INTERVAL_SECONDS, self._end_interval)

    def finish(self) -> None:
        """Write the newest report if it was not written."""
        if self._timer is not None:
            self._timer.cancel()
        self._write()

    def _end_interval(self) -> None:
        self._timer = None
        if self._pending is not None and self._left:
            self._write()
            self._timer = asyncio.get_running_loop().call_later(INTERVAL_SECONDS, self._end_interval)

    def _write(self) -> None:
        if self._pending is not None:
            self._left -= 1
            self._log.append("progress", **self._pending)
            self._pending = None


def _is_number(value: Any) -> bool:
    # NaN is not less than any number, and math.isfinite raises for an integer beyond those of a float
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= MAX_NUMBER
