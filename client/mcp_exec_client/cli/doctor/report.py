"""Report of checks, one line each."""

from dataclasses import dataclass
from typing import Final

from mcp_exec_tools.text import shorten_line

_MAX_LENGTH: Final = 600


@dataclass(kw_only=True)
class CheckReport:
    """Prints the result of each check at once and counts the problems."""

    problems: int = 0

    def ok(self, subject: str, message: str) -> None:
        """Report a check that passed."""
        self._print("ok", subject, message)

    def problem(self, subject: str, message: str, hint: str) -> None:
        """Report a check that failed. `hint` says what to do about it."""
        self.problems += 1
        self._print("problem", subject, f"{_clean(message)} -> {hint}")

    def skipped(self, subject: str, reason: str) -> None:
        """Report a check that was not possible."""
        self._print("skipped", subject, reason)

    def _print(self, result: str, subject: str, message: str) -> None:
        print(f"{result:<8} {_clean(subject)}: {_clean(message)}", flush=True)  # noqa: T201


def _clean(text: str) -> str:
    """Return the text on one line, without control characters that a terminal would interpret."""
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return shorten_line(line, _MAX_LENGTH)
