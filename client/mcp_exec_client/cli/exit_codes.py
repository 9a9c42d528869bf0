"""Exit codes, and the error that ends a command with one of them."""

from enum import IntEnum
from typing import Final, Self

CODE_REASONS: Final = frozenset(
    {"UserError", "ExitCode", "RunnerDied", "OutOfMemory", "ProcessLimit", "StorageLimit", "OutputLimit"}
)
"""Reasons of failures that the code causes."""
REFUSALS: Final = frozenset({"Rejected", "PoolNotFound", "LanguageNotOffered", "LanguageNotChecked", "QueueFull"})
"""Reasons of executions that were refused before their code ran."""


class ExitCode(IntEnum):
    """Exit code with its meaning, which the documentation shows."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> Self:
        """Create a member that equals its value and has a meaning."""
        member = int.__new__(cls, value)
        member._value_, member.meaning = value, meaning
        return member

    OK = 0, "done; for `run` and `logs -f`: the execution succeeded"
    FAILED = 1, "the code failed: an exception, `sys.exit`, or a limit of the sandbox; for `doctor`: it found a problem"
    USAGE = 2, "an option or argument is wrong"
    REFUSED = (
        3,
        "gateway, API server or operator refused the request: a wrong field, a missing right, a limit",
    )
    UNAVAILABLE = 4, "the gateway or the API server can't be reached, or has an error"
    LOST = 5, "the execution failed, but not by its code, for example `SandboxLost` or `PoolUnavailable`"
    TIMED_OUT = 124, "the execution timed out"
    CANCELLED = 130, "the execution was cancelled, or the command was interrupted"
    BROKEN_PIPE = 141, "the reader of the output closed it"


def code_of(phase: str, reason: str) -> ExitCode:
    """Return the exit code for the end of an execution."""
    if phase == "Succeeded":
        return ExitCode.OK
    if phase == "TimedOut":
        return ExitCode.TIMED_OUT
    if phase == "Cancelled":
        return ExitCode.CANCELLED
    if reason in REFUSALS:
        return ExitCode.REFUSED
    return ExitCode.FAILED if reason in CODE_REASONS else ExitCode.LOST


class CommandError(Exception):
    """Failure of a command. The text is a complete message for the user."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.code = code
