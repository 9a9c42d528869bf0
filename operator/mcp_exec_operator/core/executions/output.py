"""Output and files of a run, collected from its events. They come from a sandbox, so everything is bounded here."""

import json
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Final

from pydantic import JsonValue

from mcp_exec_api.code_execution import Durations, ExecutionError, Output, Phase
from mcp_exec_api.code_findings import MAX_NOTE_CHARACTERS, Note, NoteKind, add_note
from mcp_exec_api.constants import MAX_APPROVAL_SECONDS, MAX_TIMEOUT_SECONDS
from mcp_exec_api.files import MAX_ARTIFACTS, Artifact, WorkspaceStatus
from mcp_exec_api.meta import now
from mcp_exec_api.reasons.execution import Reason, ReasonTrait
from mcp_exec_common.kube.objects import Object, drop_empty_fields
from mcp_exec_common.supervisor.protocol import (
    ArtifactEvent,
    EndedWorkspace,
    EndEvent,
    Event,
    ResultEvent,
    StatusEvent,
    TextEvent,
)
from mcp_exec_tools.stored_json import write_long_integers
from mcp_exec_tools.text import shorten, shorten_line

_MAX_PREVIEWS: Final = 32 * 1024
"""Characters of all previews of an execution."""
_MARKER_CHARACTERS: Final = 256
"""Characters that a stream may have beyond its limit, for the cut marker of the supervisor."""
_END_REASONS: Final = {
    Phase.TIMED_OUT: Reason.TIMEOUT,
    Phase.CANCELLED: Reason.CANCELLED,
}
_LONGEST_MILLISECONDS: Final = (MAX_TIMEOUT_SECONDS + MAX_APPROVAL_SECONDS + 60.0) * 1000
"""The longest possible run."""
_MAX_TYPE: Final = 256
_MAX_MESSAGE: Final = 8 * 1024
_MAX_TRACEBACK: Final = 32 * 1024


@dataclass(kw_only=True)
class _Stream:
    pieces: list[str] = field(default_factory=list)
    size: int = 0


@dataclass(kw_only=True)
class OutputCollector:
    """Bounded output of one run. Each of its streams keeps `limit` characters and a cut marker."""

    limit: int
    replayed: bool = False
    """Whether the events are read after the fact, so that the times of their arrival mean nothing."""
    seq: int = 0
    """The last event's number; 0 before the first."""
    started_at: datetime | None = None
    """When the code began, by the sandbox's clock."""
    started: float | None = None
    """When the start event arrived, by the monotonic clock."""
    ended: float | None = None
    """When the end event arrived, by the monotonic clock."""
    end: EndEvent | None = None
    reason: Reason = Reason.NONE
    """The reason of the end, one that a sandbox may give for its phase. After a success, why no workspace was saved."""
    message: str = ""
    """The same for people."""
    error: ExecutionError | None = None
    """The error that the sandbox reported."""
    workspace: WorkspaceStatus | None = None
    """What the run read from its workspace and saved; None if the sandbox reported nothing."""
    notes: list[Note] = field(default_factory=list)
    """Notes about the output, and those of the sandbox after its end."""
    artifacts: dict[str, Object] = field(default_factory=dict)
    """Artifacts for the status by id, in their order."""
    _preview_characters: int = _MAX_PREVIEWS
    """Characters that further previews may have."""
    _streams: dict[str, _Stream] = field(default_factory=lambda: {"stdout": _Stream(), "stderr": _Stream()})
    _result: JsonValue = None
    _truncated: bool = False

    def add(self, event: Event) -> None:
        """Take in an event. A repeated one changes nothing. After the run's last event, `end` is set."""
        if event.seq <= self.seq:
            return
        self.seq = event.seq
        if isinstance(event, TextEvent):
            self._add_text(event)
        elif isinstance(event, StatusEvent):
            self.started_at, self.started = event.at, monotonic()
        elif isinstance(event, ResultEvent):
            self._add_result(event)
        elif isinstance(event, ArtifactEvent):
            self._add_artifact(event)
        elif isinstance(event, EndEvent):
            self._add_end(event)

    def build_output(self) -> Object:
        """Return the output for the status, also of a run that broke off."""
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

    def limit_start(self, *, bound_at: datetime) -> datetime | None:
        """Return when the code began. The sandbox's clock counts between the binding and now."""
        if self.started_at is None:
            return None
        try:
            return min(max(self.started_at, bound_at), now())
        except TypeError:  # no time zone
            return bound_at

    def measure(self, *, bound: float | None, bind_milliseconds: float | None) -> Durations:
        """Return the known durations of a run that was bound at this time of the monotonic clock.

        Without that time another operator has bound it. The sandbox's measure of the code counts up to the time that
        passed here, or up to the longest possible run in a replay.
        """
        values = {"bind": bind_milliseconds}
        if self.end is not None and self.started is not None and self.ended is not None:
            longest = _LONGEST_MILLISECONDS if self.replayed else (self.ended - self.started) * 1000
            values["run"] = run = min(self.end.run_ms, longest)
            if bound is not None and not self.replayed:
                values["collect"] = max(0.0, longest - run)
        if self.started is not None and bound is not None and not self.replayed:
            values["dispatch"] = (self.started - bound) * 1000
        return Durations(**{name: round(value, 3) for name, value in values.items() if value is not None})

    def _add_text(self, event: TextEvent) -> None:
        stream = self._streams[event.type]
        room = self.limit + _MARKER_CHARACTERS - stream.size
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
            # no JSON: an infinity or not a number
            self._result, self._truncated = shorten(repr(event.value), self.limit), True
            self._note(NoteKind.VALUE_CHANGED, "The sandbox sent no JSON, so this is its text.")
            return
        if len(text) > self.limit + _MARKER_CHARACTERS:
            self._result, self._truncated = shorten(text, self.limit), True
            self._note(NoteKind.OUTPUT_CUT, f"The result has more than {self.limit} characters.")
            return
        self._result, path = write_long_integers(event.value, text)
        if path:
            message = "The API server would round an integer of more than 64 bits, so it is a text."
            self._note(NoteKind.VALUE_CHANGED, message, path=path)

    def _add_artifact(self, event: ArtifactEvent) -> None:
        """Keep an artifact, unless it is one too many."""
        if event.id in self.artifacts or len(self.artifacts) >= MAX_ARTIFACTS:
            return
        preview = shorten(event.preview, self._preview_characters)
        self._preview_characters -= len(preview)
        artifact = Artifact(
            id=event.id,
            name=event.name,
            media_type=event.media_type,
            bytes=event.bytes,
            sha256=event.sha256,
            title=event.title,
            preview=preview,
        )
        self.artifacts[event.id] = drop_empty_fields(artifact.to_api())

    def _add_end(self, event: EndEvent) -> None:
        """Keep the end, and what it may say of its error, its reason and its workspace."""
        self.end, self.ended = event, monotonic()
        own, self.notes = self.notes, list(event.notes)
        for note in reversed(own):
            self.notes = add_note(self.notes, note)
        if event.workspace is not None:
            self.workspace = _read_workspace(event.workspace)
            self.message = event.workspace.message if self.workspace.reason else ""
        if event.error is not None:
            self.error = _bound_error(event.error)
            self.message = self.error.summary
        if event.phase is Phase.SUCCEEDED:
            self.reason = self.workspace.reason if self.workspace is not None else Reason.NONE
        elif event.phase in _END_REASONS:
            self.reason = _END_REASONS[event.phase]
        else:
            self.reason = event.reason if ReasonTrait.SANDBOX in event.reason.traits else Reason.USER_ERROR

    def _note(self, kind: NoteKind, message: str, *, path: str = "result") -> None:
        path = shorten_line(path, MAX_NOTE_CHARACTERS)
        self.notes = add_note(self.notes, Note(kind=kind, path=path, message=message))


def _read_workspace(ended: EndedWorkspace) -> WorkspaceStatus:
    """Return what the run saved. A sandbox has its own reasons why it saved nothing, and no others."""
    reason = ended.reason
    if reason is not Reason.NONE and ReasonTrait.FILES not in reason.traits:
        reason = Reason.WORKSPACE_UNAVAILABLE
    return WorkspaceStatus(**{**dict(ended), "reason": reason})


def _bound_error(error: ExecutionError) -> ExecutionError:
    return ExecutionError(
        type=shorten(error.type, _MAX_TYPE),
        message=shorten(error.message, _MAX_MESSAGE),
        line=error.line if error.line is not None and 0 < error.line < 2**31 else None,
        traceback=shorten(error.traceback, _MAX_TRACEBACK) if error.traceback is not None else None,
    )
