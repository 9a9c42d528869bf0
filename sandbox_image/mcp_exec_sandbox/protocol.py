"""What the supervisor and its runner agree on: file descriptor, names, bounds and the lines of the control channel.

The channel is a socket pair that carries one JSON object a line. The supervisor sends one job; the runner answers
`ready` (once, before the job), tool events, `interrupted` (where the code stood when it was told to stop) and `done`.
The agent's code shares the runner's process, so the supervisor treats every line as hostile input.
"""

import json
import signal
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypedDict

CONTROL_FD = 3
"""The runner's end of the control channel."""

STANDING_SIGNAL = signal.SIGUSR1
"""Makes the runner write its Python stack to the channel even while it is inside a long call of C code; the stack is
text in the form of `faulthandler`, innermost frame first."""

AGENT_FILE = "<agent>"
"""The file name of the agent's code in tracebacks."""

SERVERS_FOLDER = "servers"
"""Where in the workspace the wrappers of MCP servers are: a Python package."""

CATALOG_FILE = ".catalog.json"
"""In the package of each server, what `search_tools` reads."""

TOOL_EVENTS = ("tool_call", "tool_result", "approval")
"""Messages of the runner that become events of the run."""

MESSAGE_CHARACTERS = 4096
"""Bound on the message of an error."""

TRACEBACK_CHARACTERS = 16384
"""Bound on the traceback of an error."""

LimitName = Literal["memory", "processes", "storage"]
"""A resource whose exhaustion ended the code with an exception."""


class ErrorFields(TypedDict):
    """How a run failed, as clients see it."""

    type: str
    message: str
    line: int | None
    traceback: str


@dataclass(frozen=True, kw_only=True)
class RunnerLimits:
    """What the runner may use; it sets these as resource limits on itself before it takes a job.

    `memory_bytes` bounds the private memory of each process, `max_tasks` processes and threads of the user,
    `storage_bytes` the size of one file.
    """

    memory_bytes: int
    max_tasks: int
    storage_bytes: int

    def to_argument(self) -> str:
        """The limits as a command line argument."""
        return json.dumps(asdict(self))

    @classmethod
    def from_argument(cls, argument: str) -> "RunnerLimits":
        """The limits that `to_argument` wrote."""
        return cls(**json.loads(argument))


def encode(message: dict[str, Any]) -> bytes:
    """One line of the channel; lone surrogates, which UTF-8 can't carry, become question marks."""
    return (
        json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")
        + b"\n"
    )


def shorten(text: str, limit: int) -> str:
    """`text` in at most about `limit` characters: its beginning and its end, and how much is missing between them."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters cut ...]\n{text[-half:]}"
