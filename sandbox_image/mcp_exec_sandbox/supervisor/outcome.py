"""What became of a run: pure decisions from the supervisor's verdict, the runner's report and its exit."""

import signal
from dataclasses import dataclass
from typing import Any, Literal

from mcp_exec_sandbox.protocol import MESSAGE_CHARACTERS, TRACEBACK_CHARACTERS, ErrorFields, LimitName, shorten

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
    "Timeout",
    "Cancelled",
]

LIMIT_REASONS: dict[LimitName, Reason] = {
    "memory": "OutOfMemory",
    "processes": "ProcessLimit",
    "storage": "StorageLimit",
}

_ERROR_TYPES: dict[Reason, str] = {
    "OutOfMemory": "MemoryError",
    "ProcessLimit": "ProcessLimitError",
    "StorageLimit": "StorageLimitError",
    "OutputLimit": "OutputLimitError",
    "RunnerDied": "RunnerDied",
    "Timeout": "TimeoutError",
    "Cancelled": "CancelledError",
}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The supervisor's own word on a run; it stands above all that the runner says."""

    phase: Phase
    reason: Reason
    message: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """The runner's `done` line, checked."""

    error: ErrorFields | None
    exit_code: int | None
    limit: LimitName | None
    has_value: bool
    value: Any
    truncated: bool
    peak_memory_bytes: int | None

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> "Report":
        """Take what has the right shape and leave the rest: agent code may have written the line."""
        limit = message.get("limit")
        return cls(
            error=checked_error(message.get("error")),
            exit_code=_checked_integer(message.get("exitCode"), 255),
            limit=limit if isinstance(limit, str) and limit in LIMIT_REASONS else None,
            has_value=message.get("hasValue") is True,
            value=message.get("value"),
            truncated=message.get("truncated") is True,
            peak_memory_bytes=_checked_integer(message.get("peakMemoryBytes"), 1 << 50),
        )


@dataclass(frozen=True, kw_only=True)
class Interruption:
    """Where the code stood when it was interrupted, as the runner tells it."""

    line: int | None = None
    traceback: str = ""

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> "Interruption":
        """The checked `interrupted` line."""
        text = message.get("traceback")
        return cls(
            line=_checked_integer(message.get("line"), 1 << 30),
            traceback=shorten(text, TRACEBACK_CHARACTERS) if isinstance(text, str) else "",
        )


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of a run."""

    phase: Phase
    reason: Reason
    error: ErrorFields | None = None
    exit_code: int | None = None


def decide(
    *,
    verdict: Verdict | None,
    report: Report | None,
    runner_exit: int | None,
    kernel_kill: bool,
    interruption: Interruption,
) -> Outcome:
    """The outcome of a run.

    Args:
        verdict: what the supervisor decided, if it ended the run.
        report: what the runner said, if it did.
        runner_exit: how the runner ended by itself (negative: a signal), if it did.
        kernel_kill: whether the kernel killed a process for want of memory during the run.
        interruption: where the code was interrupted.
    """
    if verdict is not None:
        error = _error(verdict.reason, verdict.message, interruption)
        return Outcome(phase=verdict.phase, reason=verdict.reason, error=error)
    if report is None:
        return _died(runner_exit, kernel_kill)
    if report.exit_code:
        return Outcome(phase="Failed", reason="ExitCode", error=report.error, exit_code=report.exit_code)
    if report.error is None:
        return Outcome(phase="Succeeded", reason="", exit_code=report.exit_code)
    limit: LimitName | None = "memory" if kernel_kill else report.limit
    return Outcome(phase="Failed", reason="UserError" if limit is None else LIMIT_REASONS[limit], error=report.error)


def _died(runner_exit: int | None, kernel_kill: bool) -> Outcome:
    if runner_exit is None:
        return _failed("RunnerDied", "the interpreter stopped answering")
    if kernel_kill and runner_exit == -signal.SIGKILL:
        return _failed("OutOfMemory", "the kernel killed the interpreter because the sandbox ran out of memory")
    if runner_exit == -signal.SIGXFSZ:
        return _failed("StorageLimit", "the interpreter wrote more than the storage limit to one file")
    if runner_exit < 0:
        message = f"the interpreter was killed by signal {-runner_exit} ({signal_name(-runner_exit)})"
        return _failed("RunnerDied", message, exit_code=128 - runner_exit)
    return _failed("RunnerDied", f"the interpreter ended by itself with code {runner_exit}", exit_code=runner_exit)


def _failed(reason: Reason, message: str, *, exit_code: int | None = None) -> Outcome:
    error = _error(reason, message, Interruption())
    return Outcome(phase="Failed", reason=reason, error=error, exit_code=exit_code)


def _error(reason: Reason, message: str, place: Interruption) -> ErrorFields:
    return ErrorFields(type=_ERROR_TYPES[reason], message=message, line=place.line, traceback=place.traceback)


def signal_name(number: int) -> str:
    """A signal's name, or its number where it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def checked_error(value: object) -> ErrorFields | None:
    """An error of the right shape and size, or None."""
    if not isinstance(value, dict):
        return None
    texts = [value.get(name) if isinstance(value.get(name), str) else "" for name in ("type", "message", "traceback")]
    kind, message, traceback = (str(text) for text in texts)
    return ErrorFields(
        type=kind[:200] or "Error",
        message=shorten(message, MESSAGE_CHARACTERS),
        line=_checked_integer(value.get("line"), 1 << 30),
        traceback=shorten(traceback, TRACEBACK_CHARACTERS),
    )


def _checked_integer(value: object, high: int) -> int | None:
    return value if type(value) is int and 0 <= value <= high else None
