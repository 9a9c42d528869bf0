"""Where a reader of an event stream is: what the ids of its events say.

An id holds the last sequence number and how much text was sent of each stream, so that a reader can resume at the
pod, which replays by sequence number, and as exactly from the status, which has the same text in one piece.
"""

import re
from dataclasses import dataclass, replace
from typing import Final, Self

from mcp_exec_gateway.http.problems import invalid_field

_FORM: Final = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})\.([012])")
_OPEN, _RESULT, _ENDED = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class Position:
    """What a reader has."""

    seq: int = 0
    """The last event's sequence number."""
    stdout: int = 0
    """Characters of standard output."""
    stderr: int = 0
    """Characters of standard error."""
    stage: int = _OPEN

    @classmethod
    def parse(cls, text: str) -> Self:
        """The position that an event's id stands for. Raises Problem where it is none."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise invalid_field("lastEventId", "no id of an event of this stream")
        seq, stdout, stderr, stage = map(int, found.groups())
        return cls(seq=seq, stdout=stdout, stderr=stderr, stage=stage)

    def __str__(self) -> str:
        return f"{self.seq}.{self.stdout}.{self.stderr}.{self.stage}"

    @property
    def has_result(self) -> bool:
        """Whether the result was sent."""
        return self.stage >= _RESULT

    @property
    def ended(self) -> bool:
        """Whether all was sent."""
        return self.stage == _ENDED

    def after(self, kind: str, text: str = "") -> Self:
        """The position after one more event of a type, with its text."""
        step = replace(self, seq=self.seq + 1)
        match kind:
            case "stdout":
                return replace(step, stdout=self.stdout + len(text))
            case "stderr":
                return replace(step, stderr=self.stderr + len(text))
            case "result":
                return replace(step, stage=_RESULT)
            case "end":
                return replace(step, stage=_ENDED)
        return step
