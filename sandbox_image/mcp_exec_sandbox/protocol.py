"""Protocol between the supervisor and its runner: file descriptor, names, bounds and lines of the control channel.

The channel is a socket pair that carries one JSON object per line. The supervisor sends one job. The runner sends
`ready` (once, before the job), tool events, `interrupted` (where the code was when it was interrupted) and `done`.
The agent's code shares the runner's process, so the supervisor treats every line as hostile input.
"""

import json
import signal
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypedDict

CONTROL_FD = 3
"""The runner's end of the control channel."""

STACK_SIGNAL = signal.SIGUSR1
"""Makes the runner write its Python stack to the channel, even during a long call of C code. The stack is text in the
format of `faulthandler`, innermost frame first."""

AGENT_FILE = "<agent>"
"""The file name of the agent's code in tracebacks."""

SERVERS_FOLDER = "servers"
"""Folder of the workspace that holds the wrappers of MCP servers. It is a Python package."""

CATALOG_FILE = ".catalog.json"
"""File in the package of each server that `search_tools` reads."""

TOOL_EVENTS = ("tool_call", "tool_result", "approval")
"""Types of the runner's messages that become events of the run."""

TYPE_CHARACTERS = 200
"""Maximum length of an error's type."""

MESSAGE_CHARACTERS = 4096
"""Maximum length of an error's message."""

TRACEBACK_CHARACTERS = 16384
"""Maximum length of an error's traceback."""

TOOL_MESSAGE_CHARACTERS = 1000
"""Maximum length of the message in an event of a failed tool call."""

LimitName = Literal["memory", "processes", "storage"]
"""Resource whose exhaustion ended the code with an exception."""


class ErrorFields(TypedDict):
    """Error of a failed run, as clients see it."""

    type: str
    message: str
    line: int | None
    traceback: str


@dataclass(frozen=True, kw_only=True)
class RunnerLimits:
    """Resource limits that the runner sets on itself before it takes a job.

    `memory_bytes` limits the private memory of each process, `max_tasks` the processes and threads of the user,
    `storage_bytes` the size of one file.
    """

    memory_bytes: int
    max_tasks: int
    storage_bytes: int

    def to_argument(self) -> str:
        """Return the limits as a command line argument."""
        return json.dumps(asdict(self))

    @classmethod
    def from_argument(cls, argument: str) -> "RunnerLimits":
        """Parse the limits from the argument that `to_argument` returned."""
        return cls(**json.loads(argument))


def encode(message: dict[str, Any]) -> bytes:
    """Encode one line of the channel. Lone surrogates, which UTF-8 can't encode, become question marks."""
    return (
        json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")
        + b"\n"
    )
