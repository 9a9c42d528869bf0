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
from mcp_exec_operator.core.executions.outcome import ExecutionOutcome
from mcp_exec_operator.core.pods.status import build_usage
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
_MAX_TYPE: Final = 256
_MAX_MESSAGE: Final = 8 * 1024
_MAX_TRACEBACK: Final = 32 * 1024


@dataclass(kw_only=True)
class ArtifactCollector:
    """Artifacts of one run, in their order."""

    _artifacts: dict[str, Object] = field(default_factory=dict)
    """By id."""
    _left: int = _MAX_PREVIEWS

    def add(self, event: ArtifactEvent) -> None:
        """Take in an event. One too many changes nothing."""
        if event.id in self._artifacts or len(self._artifacts) >= MAX_ARTIFACTS:
            return
        preview = shorten(event.preview, self._left)
        self._left -= len(preview)
        artifact = Artifact(
            id=event.id,
            name=event.name,
            media_type=event.media_type,
            bytes=event.bytes,
            sha256=event.sha256,
            title=event.title,
            preview=preview,
        )
        self._artifacts[event.id] = drop_empty_fields(artifact.to_api())

    def build(self) -> list[Object]:
        """Return the artifacts for the status."""
        return list(self._artifacts.values())


def build_workspace(ended: EndedWorkspace | None) -> Object | None:
    """Return what the run read and saved for the status; None if the sandbox reported nothing."""
    if ended is None:
        return None
    status = WorkspaceStatus(**{**dict(ended), "reason": find_failure(ended)})
    return drop_empty_fields(status.to_api())


def find_failure(ended: EndedWorkspace | None) -> Reason:
    """Return why the workspace was not saved: a reason that a sandbox may give for that."""
    if ended is None or ended.reason is Reason.NONE:
        return Reason.NONE
    return ended.reason if ReasonTrait.FILES in ended.reason.traits else Reason.WORKSPACE_UNAVAILABLE


@dataclass(kw_only=True)
class _Stream:
    pieces: list[str] = field(default_factory=list)
    size: int = 0


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """Facts of a run that its events do not have."""

    code_bytes: int
    has_workspace: bool
    pod: Object | None
    """The newest object of its pod."""
    bound_at: datetime
    """When the binding was recorded, by the status."""
    bound: float | None
    """The same by the monotonic clock; None if another operator recorded it."""
    bind_milliseconds: float | None

    def measure_sandbox(self) -> float:
        """Return the seconds since the binding."""
        return monotonic() - self.bound if self.bound is not None else (now() - self.bound_at).total_seconds()

    def limit_start(self, started_at: datetime | None) -> datetime | None:
        """Return when the code began. The sandbox's clock counts between the binding and now."""
        if started_at is None:
            return None
        try:
            return min(max(started_at, self.bound_at), now())
        except TypeError:  # no time zone
            return self.bound_at


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
    artifacts: ArtifactCollector = field(default_factory=ArtifactCollector)
    _streams: dict[str, _Stream] = field(default_factory=lambda: {"stdout": _Stream(), "stderr": _Stream()})
    _result: JsonValue = None
    _notes: list[Note] = field(default_factory=list)
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
            self.artifacts.add(event)
        elif isinstance(event, EndEvent):
            self.end, self.ended = event, monotonic()

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

    def find_reason(self) -> Reason:
        """Return the reason of the end, one that a sandbox may give for its phase.

        If the code succeeded, it is why its workspace was not saved.
        """
        if self.end is None:
            return Reason.NONE
        if self.end.phase is Phase.SUCCEEDED:
            return find_failure(self.end.workspace)
        if self.end.phase in _END_REASONS:
            return _END_REASONS[self.end.phase]
        return self.end.reason if ReasonTrait.SANDBOX in self.end.reason.traits else Reason.USER_ERROR

    def build_notes(self) -> list[Note]:
        """Return the notes of the collector and of the sandbox."""
        notes = list(self.end.notes) if self.end else []
        for note in reversed(self._notes):
            notes = add_note(notes, note)
        return notes

    @property
    def workspace_problem(self) -> str:
        """Why the workspace was not saved, for people; empty if it was."""
        workspace = self.end.workspace if self.end else None
        return workspace.message if workspace is not None and find_failure(workspace) else ""

    def build_error(self) -> ExecutionError | None:
        """Return the error that the sandbox reported, bounded."""
        error = self.end.error if self.end else None
        if error is None:
            return None
        return ExecutionError(
            type=shorten(error.type, _MAX_TYPE),
            message=shorten(error.message, _MAX_MESSAGE),
            line=error.line if error.line is not None and 0 < error.line < 2**31 else None,
            traceback=shorten(error.traceback, _MAX_TRACEBACK) if error.traceback is not None else None,
        )

    def measure_run(self) -> tuple[float | None, float | None]:
        """Return the milliseconds of the code, and those from its end until all output was here; None if unknown.

        The sandbox's measure counts up to the time that passed here, or up to the longest possible run in a replay.
        """
        if self.end is None or self.started is None or self.ended is None:
            return None, None
        passed = (self.ended - self.started) * 1000
        if self.replayed:
            return min(self.end.run_ms, (MAX_TIMEOUT_SECONDS + MAX_APPROVAL_SECONDS + 60.0) * 1000), None
        run = min(self.end.run_ms, passed)
        return run, max(0.0, passed - run)

    def build_outcome(
        self,
        phase: Phase,
        reason: Reason,
        message: str,
        error: ExecutionError | None,
        *,
        facts: RunFacts,
    ) -> ExecutionOutcome:
        """Return an outcome with the output so far, when the code began, and the known durations."""
        run, collect = self.measure_run()
        dispatch = None
        if self.started is not None and facts.bound is not None and not self.replayed:
            dispatch = (self.started - facts.bound) * 1000
        else:
            collect = None
        values = {"bind": facts.bind_milliseconds, "dispatch": dispatch, "run": run, "collect": collect}
        return ExecutionOutcome(
            phase=phase,
            reason=reason,
            message=message,
            error=error,
            output=self.build_output() if self.seq else None,
            started_at=facts.limit_start(self.started_at),
            usage=build_usage(
                self.end, pod=facts.pod, sandbox_seconds=facts.measure_sandbox(), code_bytes=facts.code_bytes
            ),
            artifacts=self.artifacts.build(),
            notes=self.build_notes(),
            workspace=build_workspace(self.end.workspace if self.end and facts.has_workspace else None),
            durations=Durations(**{name: round(value, 3) for name, value in values.items() if value is not None}),
        )

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

    def _note(self, kind: NoteKind, message: str, *, path: str = "result") -> None:
        self._notes = add_note(
            self._notes, Note(kind=kind, path=shorten_line(path, MAX_NOTE_CHARACTERS), message=message)
        )
