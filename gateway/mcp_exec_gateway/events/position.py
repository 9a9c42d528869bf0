"""Position of a client in an event stream, which is the id of each event.

A position has the last sequence number and the number of characters sent of each text stream. A client can therefore
resume from the pod, which replays by sequence number, and as exactly from the status, which has each text in one piece.
"""

import re
from dataclasses import dataclass, replace
from typing import Final, Self

from mcp_exec_gateway.http.problems import invalid_field

_ID: Final = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})\.(\d{1,3})")
_RUNNING, _RESULT_SENT, _ENDED = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class StreamPosition:
    """What the client has received."""

    seq: int = 0
    """Sequence number of the last event."""
    stdout: int = 0
    """Characters of standard output."""
    stderr: int = 0
    """Characters of standard error."""
    stage: int = _RUNNING

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an event's id. Raises HttpProblem if it is malformed."""
        match = _ID.fullmatch(text)
        if match is None:
            raise invalid_field("lastEventId", "not the id of an event of this stream")
        seq, stdout, stderr, stage = map(int, match.groups())
        return cls(seq=seq, stdout=stdout, stderr=stderr, stage=stage)

    def __str__(self) -> str:
        return f"{self.seq}.{self.stdout}.{self.stderr}.{self.stage}"

    @property
    def has_result(self) -> bool:
        """Whether the result was sent."""
        return self.stage >= _RESULT_SENT

    @property
    def artifacts(self) -> int:
        """Number of artifacts that were sent, all of them from the status."""
        return max(0, self.stage - _ENDED)

    @property
    def ended(self) -> bool:
        """Whether the whole stream was sent."""
        return self.stage == _ENDED

    def skip(self) -> Self:
        """Return the position after an event of the sandbox that is not sent."""
        return replace(self, seq=self.seq + 1)

    def advance(self, event_type: str, text: str = "") -> Self:
        """Return the position after one more event, with its text if it has one."""
        position = replace(self, seq=self.seq + 1)
        match event_type:
            case "artifact":
                return replace(position, stage=max(self.stage, _ENDED) + 1)
            case "stdout":
                return replace(position, stdout=self.stdout + len(text))
            case "stderr":
                return replace(position, stderr=self.stderr + len(text))
            case "result":
                return replace(position, stage=_RESULT_SENT)
            case "end":
                return replace(position, stage=_ENDED)
        return position
