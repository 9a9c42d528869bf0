"""Protocol between the supervisor and its runner: file descriptor, names, bounds and lines of the control channel.

The channel is a socket pair that carries one JSON object per line. The supervisor sends one job, or in a session one
after the other. The runner sends `ready` (once, before the job), tool events, `interrupted` (where the code was when it
was interrupted), `ended` (the report of code that has ended, if threads, exit handlers or files are left) and `done`.
The agent's code shares the runner's process, so the supervisor treats every line as hostile input. Before its job, a
runner may get `fork` instead: then it never runs code but is the template of others. The message comes with the
channel, stdout and stderr of the forked runner as open files.
"""

import json
import signal
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypedDict, get_args

from mcp_exec_tools.text import shorten_line

Language = Literal["python", "typescript"]
"""Language of the code that a sandbox runs."""

LANGUAGES: tuple[Language, ...] = get_args(Language)

CONTROL_FD = 3
"""The runner's end of the control channel."""

HIDDEN_PREFIXES = ("MCP_EXEC_", "KUBERNETES_")
"""Prefixes of the container's variables that the code does not get."""

CPU_COUNT_VARIABLE = "PYTHON_CPU_COUNT"
"""Variable with the number of processors of the pod's limit, rounded up. The operator sets it, Python 3.13 reads it."""

STACK_SIGNAL = signal.SIGUSR1
"""Makes the runner write its Python stack to the channel, even during a long call of C code. The stack is text in the
format of `faulthandler`, innermost frame first."""

AGENT_FILE = "<agent>"
"""The file name of the agent's code in tracebacks. The later jobs of a session have `<agent 2>` and so on."""

FORK = "fork"
"""Type of the message that makes a runner a template and asks it for a fork."""

EXITED = "exited"
"""Type of the template's message that the runner that it forked has ended, with its exit code."""

SERVERS_FOLDER = "servers"
"""Folder of the workspace that holds the wrappers of MCP servers. It is a Python package."""

ARTIFACTS_FOLDER = "artifacts"
"""Folder of the workspace whose files are artifacts of the run."""

ENDED = "ended"
"""Type of the report that precedes `done` if the end of the interpreter may take time."""

LEFT_CHARACTERS = 400
"""Maximum length of the text about what was still running at the time limit."""

ARTIFACT_EVENT = "artifact"
"""Type of the runner's messages about files that the code shows."""

ARTIFACT_TEXT_CHARACTERS = 200
"""Maximum length of the name and of the title of an artifact."""

PREVIEW_CHARACTERS = 2000
"""Maximum length of the text that stands for an artifact."""

CATALOG_FILE = ".catalog.json"
"""File in the package of each server that `search_tools` reads."""

TOOL_EVENTS = ("tool_call", "tool_result", "approval")
"""Types of the runner's messages that become events of the run."""

PROGRESS_EVENT = "progress"
"""Type of the runner's messages about the progress of the code."""

SKILL_EVENT = "skill"
"""Type of the runner's messages about a skill that the code saves."""

SEARCH = "search"
"""Type of the runner's request for tools, in a language without an index of its own. The supervisor sends an `answer`
with the same id."""

SKILLS_FOLDER = "skills"
"""Package of skills, and the folder of the workspace whose own modules it has, too."""

SAVED_SKILLS = 5
"""Maximum number of skills that one run saves."""

SAVED_CODE_BYTES = 64 * 1024
"""Maximum size of the code of a skill that a run saves. Larger ones are saved through the gateway."""

PROGRESS_CHARACTERS = 200
"""Maximum length of the text of a progress event."""

TYPE_CHARACTERS = 200
"""Maximum length of an error's type."""

MESSAGE_CHARACTERS = 4096
"""Maximum length of an error's message."""

TRACEBACK_CHARACTERS = 16384
"""Maximum length of an error's traceback."""

TOOL_MESSAGE_CHARACTERS = 1000
"""Maximum length of the message in an event of a failed tool call."""

MEDIA_TYPES = {
    "csv": "text/csv",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "gif": "image/gif",
    "gz": "application/gzip",
    "html": "text/html",
    "htm": "text/html",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "json": "application/json",
    "md": "text/markdown",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "ogg": "audio/ogg",
    "parquet": "application/vnd.apache.parquet",
    "pdf": "application/pdf",
    "png": "image/png",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "py": "text/x-python",
    "svg": "image/svg+xml",
    "tsv": "text/tab-separated-values",
    "txt": "text/plain",
    "log": "text/plain",
    "wav": "audio/wav",
    "webp": "image/webp",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "xml": "application/xml",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "zip": "application/zip",
}
"""Media types of files by extension; of several extensions of a type, the usual one is first."""

EXTENSIONS = {kind: extension for extension, kind in reversed(MEDIA_TYPES.items())} | {"audio/x-wav": "wav"}
"""Usual extension of a media type."""

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
    """Preparation of the runner before it takes a job: modules to import, then resource limits to set on itself.

    `memory_bytes` limits the private memory of each process, `max_tasks` the processes and threads of the user,
    `storage_bytes` the size of one file.
    """

    memory_bytes: int
    max_tasks: int
    storage_bytes: int
    preimport: tuple[str, ...] = ()
    """Modules of the image to import."""

    def to_argument(self) -> str:
        """Return the limits as a command line argument."""
        return json.dumps(asdict(self))

    @classmethod
    def from_argument(cls, argument: str) -> "RunnerLimits":
        """Parse the limits from the argument that `to_argument` returned."""
        fields = json.loads(argument)
        return cls(**{**fields, "preimport": tuple(fields["preimport"])})


@dataclass(frozen=True, kw_only=True)
class RunnerStart:
    """Settings of a process that becomes the runner, in addition to its descriptors."""

    limits: RunnerLimits
    environment: dict[str, str]
    folder: str
    """Working folder."""

    def encode(self) -> bytes:
        """Return it as a message."""
        return json.dumps({**asdict(self), "limits": self.limits.to_argument()}).encode()

    @classmethod
    def decode(cls, message: bytes) -> "RunnerStart":
        """Read the message that `encode` returned."""
        fields = json.loads(message)
        return cls(**{**fields, "limits": RunnerLimits.from_argument(fields["limits"])})


def encode(message: dict[str, Any]) -> bytes:
    """Encode one line of the channel. Lone surrogates, which UTF-8 can't encode, become question marks."""
    return (
        json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")
        + b"\n"
    )


MAX_NOTES = 16
NOTE_CHARACTERS = 200
"""Maximum length of the message of a note, and of its path."""

NoteKind = Literal[
    "ThreadsLeft",
    "FileFlushed",
    "FileNotKept",
    "ValueChanged",
    "KeysCollided",
    "OutputCut",
    "CodeChanged",
    "NotAwaited",
    "ErrorIgnored",
    "NoNetwork",
    "NotesDropped",
]
KINDS: tuple[NoteKind, ...] = get_args(NoteKind)


class NoteFields(TypedDict):
    """One note, as clients see it. The path is empty if the note concerns no value."""

    kind: NoteKind
    path: str
    message: str


class Notes:
    """The notes of one run, in their order, without repetitions. What does not fit is counted by a last note."""

    def __init__(self) -> None:
        self._notes: list[NoteFields] = []
        self._dropped = 0

    def add(self, kind: NoteKind, message: str, *, path: str = "") -> None:
        """Add a note: one sentence, and for a note on a value, its path (for example `result.rows[3].price`)."""
        note = NoteFields(
            kind=kind, path=shorten_line(path, NOTE_CHARACTERS), message=shorten_line(message, NOTE_CHARACTERS)
        )
        if note in self._notes:
            return
        if len(self._notes) < MAX_NOTES:
            self._notes.append(note)
        else:
            self._dropped += 1

    def to_message(self) -> list[NoteFields]:
        """Return the notes, at most `MAX_NOTES`."""
        if not self._dropped:
            return list(self._notes)
        message = f"{self._dropped + 1} more notes do not fit here."
        return [*self._notes[: MAX_NOTES - 1], NoteFields(kind="NotesDropped", path="", message=message)]


def parse_notes(value: object) -> Sequence[NoteFields]:
    """Return the valid notes of a message. The agent's code may have written it, so everything else is dropped."""
    notes = Notes()
    for item in value[:MAX_NOTES] if isinstance(value, list) else ():
        if not isinstance(item, dict):
            continue
        kind, path, message = item.get("kind"), item.get("path"), item.get("message")
        if kind in KINDS and isinstance(path, str) and isinstance(message, str) and message:
            notes.add(kind, message, path=path)
    return notes.to_message()
