"""Outcome of a run, computed from the supervisor's decision, the runner's report and the runner's exit."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from mcp_exec_sandbox.protocol import (
    LEFT_CHARACTERS,
    MESSAGE_CHARACTERS,
    TRACEBACK_CHARACTERS,
    TYPE_CHARACTERS,
    ErrorFields,
    Language,
    LimitName,
    NoteFields,
    parse_notes,
)
from mcp_exec_tools.text import shorten, shorten_line

Phase = Literal["Succeeded", "Failed", "TimedOut", "Cancelled"]
Reason = Literal[
    "",
    "UserError",
    "ExitCode",
    "RunnerDied",
    "OutOfMemory",
    "ProcessLimit",
    "StorageLimit",
    "OutputLimit",
    "IsolationLost",
    "WorkspaceUnavailable",
    "Timeout",
    "Cancelled",
]

LIMIT_REASONS: dict[LimitName, Reason] = {
    "memory": "OutOfMemory",
    "processes": "ProcessLimit",
    "storage": "StorageLimit",
}

_HEAP_SIGNALS = (-signal.SIGTRAP, -signal.SIGILL)
"""Exits of V8 once its heap is full; the signal depends on the machine."""

_ERROR_TYPES: dict[Reason, str] = {
    "OutOfMemory": "MemoryError",
    "ProcessLimit": "ProcessLimitError",
    "StorageLimit": "StorageLimitError",
    "OutputLimit": "OutputLimitError",
    "IsolationLost": "IsolationLostError",
    "WorkspaceUnavailable": "WorkspaceUnavailable",
    "RunnerDied": "RunnerDied",
    "Timeout": "TimeoutError",
    "Cancelled": "CancelledError",
}


@dataclass(frozen=True, kw_only=True)
class SupervisorDecision:
    """The supervisor's decision to end a run. It overrides everything that the runner reports."""

    phase: Phase
    reason: Reason
    message: str


@dataclass(frozen=True, kw_only=True)
class RunnerReport:
    """The checked message `done` of the runner."""

    error: ErrorFields | None
    exit_code: int | None
    limit: LimitName | None
    has_value: bool
    value: Any
    truncated: bool
    peak_memory_bytes: int | None
    notes: Sequence[NoteFields]
    left: str
    """Work that was still running when the end of the interpreter was interrupted, for people."""

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> "RunnerReport":
        """Keep the fields with valid types and ignore others, because the agent's code may have written the line."""
        limit = message.get("limit")
        return cls(
            error=parse_error(message.get("error")),
            exit_code=_parse_integer(message.get("exitCode"), 255),
            limit=limit if isinstance(limit, str) and limit in LIMIT_REASONS else None,
            has_value=message.get("hasValue") is True,
            value=message.get("value"),
            truncated=message.get("truncated") is True,
            peak_memory_bytes=_parse_integer(message.get("peakMemoryBytes"), 1 << 50),
            notes=parse_notes(message.get("notes")),
            left=shorten_line(left, LEFT_CHARACTERS) if isinstance(left := message.get("left"), str) else "",
        )


@dataclass(frozen=True, kw_only=True)
class InterruptLocation:
    """Place of the interrupted code, as the runner reports it."""

    line: int | None = None
    traceback: str = ""
    is_deep: bool = False
    """Whether the stack had more than a hundred calls."""

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> "InterruptLocation":
        """Return the checked location of a message `interrupted` or `stack`."""
        text = message.get("traceback")
        return cls(
            line=_parse_integer(message.get("line"), 1 << 30),
            traceback=shorten(text, TRACEBACK_CHARACTERS) if isinstance(text, str) else "",
        )


@dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """The outcome of a run."""

    phase: Phase
    reason: Reason
    error: ErrorFields | None = None
    exit_code: int | None = None


def decide_outcome(
    *,
    decision: SupervisorDecision | None,
    report: RunnerReport | None,
    ended_late: bool,
    runner_exit: int | None,
    kernel_kill: bool,
    interruption: InterruptLocation,
    limits: Mapping[LimitName, str],
    language: Language = "python",
) -> RunOutcome:
    """Return the outcome of a run.

    Args:
        decision: the supervisor's decision, if it ended the run.
        report: the runner's report, if it sent one.
        ended_late: whether the code came to its own end before the decision, and what it left did not.
        runner_exit: the runner's exit code (negative: a signal), if it ended unasked.
        kernel_kill: whether the kernel killed a process during the run because memory ran out.
        interruption: where the interrupted or crashed code was.
        limits: the limits of the sandbox, each as a part of a sentence.
        language: language of the code.
    """
    if decision is not None and ended_late and report is not None:
        return _explain_late_end(decision, report)
    if decision is not None:
        return explain_decision(_add_silence(decision, report), interruption)
    if report is None:
        return _explain_death(runner_exit, kernel_kill, interruption, limits, language)
    if report.exit_code:
        return RunOutcome(phase="Failed", reason="ExitCode", error=report.error, exit_code=report.exit_code)
    if report.error is None:
        return RunOutcome(phase="Succeeded", reason="", exit_code=report.exit_code)
    limit: LimitName | None = "memory" if kernel_kill else report.limit
    if limit is None:
        return RunOutcome(phase="Failed", reason="UserError", error=report.error)
    message = shorten(f"{report.error['message']} ({limits[limit]})", MESSAGE_CHARACTERS)
    return RunOutcome(phase="Failed", reason=LIMIT_REASONS[limit], error={**report.error, "message": message})


def explain_decision(decision: SupervisorDecision, interruption: InterruptLocation) -> RunOutcome:
    """Return the outcome of a run that the supervisor ended."""
    error = _build_error(decision.reason, decision.message, interruption)
    return RunOutcome(phase=decision.phase, reason=decision.reason, error=error)


def _explain_late_end(decision: SupervisorDecision, report: RunnerReport) -> RunOutcome:
    """Return the outcome of a run whose code has ended, but not what it left: threads, processes, exit handlers."""
    end = "ended"
    if report.exit_code:
        end = f"ended with exit code {report.exit_code}"
    elif report.error is not None:
        end = f"ended with {report.error['type']}: {report.error['message']}"
    left = report.left or "its threads, exit handlers or open files did not come to an end"
    location = InterruptLocation()
    if report.error is not None:
        location = InterruptLocation(line=report.error["line"], traceback=report.error["traceback"])
    message = shorten(f"{decision.message}: it {end}, but {left}", MESSAGE_CHARACTERS)
    return RunOutcome(
        phase=decision.phase, reason=decision.reason, error=_build_error(decision.reason, message, location)
    )


def _add_silence(decision: SupervisorDecision, report: RunnerReport | None) -> SupervisorDecision:
    """Return the decision with the reason for the kill, if the interrupted code did not end."""
    if report is not None or decision.reason != "Timeout":
        return decision
    return replace(decision, message=f"{decision.message}; it did not end when it was interrupted, so it was killed")


def _explain_death(
    runner_exit: int | None,
    kernel_kill: bool,
    location: InterruptLocation,
    limits: Mapping[LimitName, str],
    language: Language,
) -> RunOutcome:
    if runner_exit is None:
        return _fail("RunnerDied", "the interpreter stopped answering")
    if kernel_kill and runner_exit == -signal.SIGKILL:
        return _fail("OutOfMemory", f"the kernel killed the interpreter because {limits['memory']}")
    if language == "typescript" and runner_exit in _HEAP_SIGNALS:
        return _fail("OutOfMemory", f"the heap of the interpreter is full: {limits['memory']}")
    if runner_exit == -signal.SIGXFSZ:
        return _fail("StorageLimit", f"the interpreter wrote too much to one file: {limits['storage']}")
    if runner_exit < 0:
        message = f"the interpreter was killed by signal {-runner_exit} ({_name_signal(-runner_exit)})"
        if runner_exit == -signal.SIGSEGV and location.is_deep:
            message = f"the stack overflowed, which a recursion without end causes: {message}"
        return _fail("RunnerDied", message, exit_code=128 - runner_exit, location=location)
    if language == "typescript":
        message = f"the interpreter ended with code {runner_exit}, as an error in a worker does that nothing handles"
        return _fail("RunnerDied", message, exit_code=runner_exit)
    end = f"the interpreter ended with code {runner_exit}, as `os._exit({runner_exit})` does"
    message = f"{end}: `sys.exit({runner_exit})` ends the code, and its output is kept"
    return _fail("RunnerDied", message, exit_code=runner_exit)


def _fail(
    reason: Reason, message: str, *, exit_code: int | None = None, location: InterruptLocation | None = None
) -> RunOutcome:
    error = _build_error(reason, message, location or InterruptLocation())
    return RunOutcome(phase="Failed", reason=reason, error=error, exit_code=exit_code)


def _build_error(reason: Reason, message: str, location: InterruptLocation) -> ErrorFields:
    return ErrorFields(type=_ERROR_TYPES[reason], message=message, line=location.line, traceback=location.traceback)


def _name_signal(number: int) -> str:
    """Return a signal's name, or its number if it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def parse_error(value: object) -> ErrorFields | None:
    """Return an error with fields of the right type and size, or None."""
    if not isinstance(value, dict):
        return None
    texts = [value.get(name) if isinstance(value.get(name), str) else "" for name in ("type", "message", "traceback")]
    kind, message, traceback = (str(text) for text in texts)
    return ErrorFields(
        type=shorten(kind, TYPE_CHARACTERS) or "Error",
        message=shorten(message, MESSAGE_CHARACTERS),
        line=_parse_integer(value.get("line"), 1 << 30),
        traceback=shorten(traceback, TRACEBACK_CHARACTERS),
    )


def _parse_integer(value: object, high: int) -> int | None:
    return value if type(value) is int and 0 <= value <= high else None
