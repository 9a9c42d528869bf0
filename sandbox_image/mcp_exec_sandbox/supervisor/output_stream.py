"""One output stream of the run: bytes in, bounded `stdout` or `stderr` events out."""

import asyncio
from typing import Literal

from mcp_exec_sandbox.supervisor.event_log import EventLog
from mcp_exec_sandbox.supervisor.output import HeadTail

PROMPT_EVENTS = 100
"""So many events are passed on at once; later ones are gathered, so that output byte by byte can't fill the log."""

GATHER_SECONDS = 0.025


class OutputStream:
    """Passes the head on as events and keeps the tail for the end."""

    def __init__(self, *, kind: Literal["stdout", "stderr"], limit: int, log: EventLog) -> None:
        self._kind = kind
        self._log = log
        self._text = HeadTail(limit)
        self._gathered: list[str] = []
        self._events = 0
        self._timer: asyncio.TimerHandle | None = None
        self.total = 0
        """Bytes written in all."""
        self.truncated = False
        """Whether bytes were cut; known after `finish`."""

    def write(self, data: memoryview) -> None:
        """Take what the code wrote."""
        self.total += len(data)
        text = self._text.write(data)
        if not text:
            return
        self._gathered.append(text)
        if self._events < PROMPT_EVENTS:
            self._flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER_SECONDS, self._flush)

    def finish(self) -> None:
        """Emit all that is left. To be called once."""
        rest, self.truncated = self._text.finish()
        self._gathered.append(rest)
        self._flush()

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        text = "".join(self._gathered)
        self._gathered.clear()
        if text:
            self._events += 1
            self._log.append(self._kind, text=text)
