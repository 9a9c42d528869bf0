"""Static code check: a pool's settings for it, and its findings."""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from mcp_exec_api.constants import Language
from mcp_exec_api.meta import Model, OpenEnum, Quantity

MAX_FINDINGS: Final = 20
MAX_MESSAGE_CHARACTERS: Final = 256


class Rule(OpenEnum):
    """Rule that produced a finding."""

    DYNAMIC_CODE = "DynamicCode"
    """Text is executed as code: `eval`, `exec`, `compile`, `__import__`, `importlib.import_module`."""
    SUBPROCESS = "Subprocess"
    """Starts another program or process: `subprocess`, `os.system`, `os.exec*`, `os.fork`, `pty`."""
    NATIVE_CODE = "NativeCode"
    """Calls native code: `ctypes`, `cffi`."""
    NETWORK = "Network"
    """Opens a network connection, which the sandbox blocks: `socket`, `asyncio.open_connection`."""
    IMPORT_NOT_ALLOWED = "ImportNotAllowed"
    """Imports a module that the pool does not allow."""
    FORMATTED_SQL = "FormattedSql"
    """Formats values into the text of a query instead of passing them as parameters."""
    ENDLESS_LOOP = "EndlessLoop"
    """A loop that never ends: the execution would time out."""
    LARGE_VALUE = "LargeValue"
    """A value larger than the sandbox's memory: the execution would fail with OutOfMemory."""
    NOT_CHECKED = "NotChecked"
    """The code is too long or too deeply nested to be checked."""


class Severity(OpenEnum):
    """Severity of a finding."""

    HIGH = "High"
    MEDIUM = "Medium"


class Finding(Model):
    """A problem that the static check found in the code."""

    rule: Rule
    """Rule that produced the finding, for example `Subprocess` or `EndlessLoop`."""
    severity: Severity
    """High: executes text, starts processes or calls native code. Medium: everything else."""
    line: Annotated[int, Field(ge=1)]
    """Line of the code; the first line is 1."""
    message: Annotated[str, Field(max_length=MAX_MESSAGE_CHARACTERS)]
    """What was found and what to write instead."""

    def __str__(self) -> str:
        return f"line {self.line}: {self.message} ({self.rule})"


CHECKED_LANGUAGES: Final[frozenset[Language]] = frozenset({"python"})
"""Languages that the rules read. A pool that has rules refuses code of others."""


class CodeCheckMode(StrEnum):
    """Action on findings."""

    OFF = "Off"
    """No check."""
    WARN = "Warn"
    """The code runs; its findings are in the status."""
    STRICT = "Strict"
    """Code with findings is rejected."""


ModuleName = Annotated[
    str, Field(min_length=1, max_length=128, pattern=r"^(\*|[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*)$")
]
"""A Python module with its submodules; `*` is every module."""


class CodeCheck(Model):
    """Static check of the code before it runs. It helps to find mistakes; it is not a security boundary.

    The rules read Python. Unless the mode is Off, a pool of another language refuses all its executions.
    """

    mode: CodeCheckMode = CodeCheckMode.OFF
    """Off: no check. Warn: the code runs and its findings are in the status. Strict: code with findings is rejected."""
    allowed_imports: Annotated[list[ModuleName], Field(max_length=256)] = Field(default_factory=lambda: ["*"])
    """Modules that code may import, each with its submodules; the default `*` allows every module. Modules of tools and
    skills are always allowed."""
    memory: Quantity = "512Mi"
    """Largest value in bytes that the code may create, if its size can be computed from the code. The default is the
    default memory limit of a sandbox less its `workspaceSize`."""


MAX_NOTES: Final = 16
MAX_NOTE_CHARACTERS: Final = 200


class NoteKind(StrEnum):
    """Kinds of notes, each with its meaning. Readers ignore kinds that they do not know."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> "NoteKind":
        """Create a member with its meaning."""
        member = str.__new__(cls, value)
        member._value_, member.meaning = value, meaning
        return member

    THREADS_LEFT = "ThreadsLeft", "threads or processes of the code were still running when the run ended"
    FILE_FLUSHED = "FileFlushed", "the code left files open; what it had written was saved when the run ended"
    FILE_NOT_KEPT = "FileNotKept", "a file was not saved to the workspace or as an artifact"
    VALUE_CHANGED = (
        "ValueChanged",
        "a part of the result or of a tool's call has another form than the code gave it, because JSON or the tool's "
        "schema cannot express it",
    )
    KEYS_COLLIDED = "KeysCollided", "different keys of a mapping have the same text"
    OUTPUT_CUT = "OutputCut", "output or result was longer than the limit"
    CODE_CHANGED = "CodeChanged", "the code ran without a part that is no Python, for example a Markdown fence"
    NOT_AWAITED = (
        "NotAwaited",
        "calls whose `await` is missing: nothing was done, it was cancelled at the end, or its error was not read",
    )
    ERROR_IGNORED = "ErrorIgnored", "an error of a thread, a callback or a finalizer, which did not fail the execution"
    NO_NETWORK = "NoNetwork", "the code tried to reach a network, which no sandbox has"
    NO_TOOL_MATCHES = "NoToolMatches", "patterns of `spec.tools` match no tool, so they grant nothing"
    NOTES_DROPPED = "NotesDropped", "more notes than fit"


class Note(Model):
    """Facts about a run that a reader must know though it succeeded."""

    kind: Annotated[str, Field(max_length=40, pattern=r"^[A-Z][A-Za-z]*$")]
    """Kind of the note, for programs: ThreadsLeft, FileFlushed, FileNotKept, ValueChanged, KeysCollided, OutputCut,
    CodeChanged, NotAwaited, ErrorIgnored, NoNetwork, NoToolMatches or NotesDropped. Later versions may add kinds."""
    path: Annotated[str, Field(max_length=MAX_NOTE_CHARACTERS)] = ""
    """Part of the result that the note concerns, for example `result.rows[3].price`. Empty if it concerns none."""
    message: Annotated[str, Field(max_length=MAX_NOTE_CHARACTERS)]
    """One sentence for people."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def add_note(notes: list[Note], note: Note) -> list[Note]:
    """Return the notes with another one before them. The last ones give way if there are too many."""
    return [note, *(known for known in notes if known != note)][:MAX_NOTES]
