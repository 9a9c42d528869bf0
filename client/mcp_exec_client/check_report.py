"""What an examination found, a line each."""

from dataclasses import dataclass
from typing import Final

_LONGEST: Final = 600


@dataclass(kw_only=True)
class Report:
    """Prints each finding as it comes, and counts those that are problems."""

    problems: int = 0

    def ok(self, what: str, said: str) -> None:
        """All is well with it."""
        self._line("ok", what, said)

    def problem(self, what: str, said: str, hint: str) -> None:
        """Something is wrong with it; `hint` is what to do about that."""
        self.problems += 1
        self._line("problem", what, f"{_tidy(said)} -> {hint}")

    def skipped(self, what: str, why: str) -> None:
        """It could not be looked at."""
        self._line("skipped", what, why)

    def _line(self, state: str, what: str, said: str) -> None:
        print(f"{state:<8} {_tidy(what)}: {_tidy(said)}", flush=True)  # noqa: T201


def _tidy(text: str) -> str:
    """On one line, and without what a terminal would act upon."""
    shown = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"
