"""Gathers a run's events into its output. All of it comes from inside a sandbox, so everything is bounded here."""

import json
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Final

from pydantic import JsonValue

from mcp_exec_api.code_execution import ExecutionError, Output, Phase, Reason
from mcp_exec_api.constants import MAX_TIMEOUT_SECONDS
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.supervisor.protocol import EndEvent, Event, ResultEvent, StatusEvent, TextEvent

_MARKER_ROOM: Final = 256
"""Characters that a stream may have beyond its limit: the line that says how much was cut."""
_FAILURES: Final = frozenset(
    {
        Reason.USER_ERROR,
        Reason.EXIT_CODE,
        Reason.RUNNER_DIED,
        Reason.OUT_OF_MEMORY,
        Reason.PROCESS_LIMIT,
        Reason.STORAGE_LIMIT,
        Reason.OUTPUT_LIMIT,
    }
)
"""The reasons for a failure that a sandbox may give."""
_ENDS: Final = {
    Phase.SUCCEEDED: Reason.NONE,
    Phase.TIMED_OUT: Reason.TIMEOUT,
    Phase.CANCELLED: Reason.CANCELLED,
}
_MAX_TYPE: Final = 256
_MAX_MESSAGE: Final = 8 * 1024
_MAX_TRACEBACK: Final = 32 * 1024


@dataclass(kw_only=True)
class _Stream:
    pieces: list[str] = field(default_factory=list)
    size: int = 0


@dataclass(kw_only=True)
class Collector:
    """What a run has said so far. Each of its streams keeps `limit` characters and a little."""

    limit: int
    replayed: bool = False
    """Whether it is heard of after the fact, so that the moments of hearing tell nothing."""
    seq: int = 0
    """The last event's number; 0 before the first."""
    started_at: datetime | None = None
    """When the code began, by the sandbox's clock."""
    started: float | None = None
    """When that was heard of, by the monotonic clock."""
    ended: float | None = None
    """When the end was heard of, by the monotonic clock."""
    end: EndEvent | None = None
    _streams: dict[str, _Stream] = field(default_factory=lambda: {"stdout": _Stream(), "stderr": _Stream()})
    _result: JsonValue = None
    _truncated: bool = False

    def add(self, event: Event) -> bool:
        """Takes in an event; one that is known already changes nothing. True where it is the run's last."""
        if event.seq <= self.seq:
            return False
        self.seq = event.seq
        if isinstance(event, TextEvent):
            self._add_text(event)
        elif isinstance(event, StatusEvent):
            self.started_at, self.started = event.at, monotonic()
        elif isinstance(event, ResultEvent):
            self._add_result(event)
        elif isinstance(event, EndEvent):
            self.end, self.ended = event, monotonic()
            return True
        return False

    def output(self) -> Object:
        """The output as it stands in a status, also of a run that broke off."""
        stdout, stderr = ("".join(self._streams[name].pieces) for name in ("stdout", "stderr"))
        end = self.end
        output = Output(
            stdout=stdout,
            stderr=stderr,
            stdout_bytes=end.stdout_bytes if end else len(stdout.encode("utf-8", "replace")),
            stderr_bytes=end.stderr_bytes if end else len(stderr.encode("utf-8", "replace")),
            truncated=self._truncated or (end is not None and end.truncated),
        ).to_api()
        return output | ({} if self._result is None else {"result": self._result})

    def reason(self) -> Reason:
        """Why it ended so, one of the reasons that go with its phase."""
        if self.end is None:
            return Reason.NONE
        if self.end.phase in _ENDS:
            return _ENDS[self.end.phase]
        return self.end.reason if self.end.reason in _FAILURES else Reason.USER_ERROR

    def error(self) -> ExecutionError | None:
        """Why it failed, as the sandbox says."""
        error = self.end.error if self.end else None
        if error is None:
            return None
        return ExecutionError(
            type=shorten(error.type, _MAX_TYPE),
            message=shorten(error.message, _MAX_MESSAGE),
            line=error.line if error.line is not None and 0 < error.line < 2**31 else None,
            traceback=shorten(error.traceback, _MAX_TRACEBACK) if error.traceback is not None else None,
        )

    def run_milliseconds(self) -> float | None:
        """How long the code ran: what the sandbox says, but no more than passed here, or than any run may have."""
        if self.end is None or self.started is None or self.ended is None:
            return None
        longest = MAX_TIMEOUT_SECONDS + 60.0 if self.replayed else self.ended - self.started
        return min(self.end.run_ms, longest * 1000)

    def _add_text(self, event: TextEvent) -> None:
        stream = self._streams[event.type]
        room = self.limit + _MARKER_ROOM - stream.size
        text = event.text[:room] if room > 0 else ""
        self._truncated |= len(text) < len(event.text)
        if text:
            stream.pieces.append(text)
            stream.size += len(text)

    def _add_result(self, event: ResultEvent) -> None:
        self._truncated |= event.truncated
        try:
            text = json.dumps(event.value, ensure_ascii=False, allow_nan=False)
        except (ValueError, RecursionError):
            # no JSON: an infinity, or something that is not a number
            self._result, self._truncated = shorten(repr(event.value), self.limit), True
            return
        if len(text) > self.limit + _MARKER_ROOM:
            self._result, self._truncated = shorten(text, self.limit), True
        else:
            self._result = event.value


def shorten(text: str, limit: int) -> str:
    """The text, of too much its head and tail with a mark between them that says how much is cut."""
    if len(text) <= limit:
        return text
    half = max(0, limit // 2)
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters cut ...]\n{text[len(text) - half :]}"
