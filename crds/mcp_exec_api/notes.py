"""Notes on an execution: what a reader must know though the code succeeded."""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from mcp_exec_api.meta import Model

MAX_NOTES: Final = 16
MAX_NOTE_CHARACTERS: Final = 200


class NoteKind(StrEnum):
    """Kinds of notes. Readers ignore kinds that they do not know."""

    THREADS_LEFT = "ThreadsLeft"
    """Threads or processes of the code were still running when the run ended."""
    FILE_FLUSHED = "FileFlushed"
    """The code left files open. What it had written was saved when the run ended."""
    FILE_NOT_KEPT = "FileNotKept"
    """A file was not saved to the workspace or as an artifact."""
    VALUE_CHANGED = "ValueChanged"
    """A part of the result has another form than in Python, because JSON cannot express it."""
    KEYS_COLLIDED = "KeysCollided"
    """Different keys of a mapping have the same text."""
    OUTPUT_CUT = "OutputCut"
    """Output or result was longer than the limit."""
    CODE_CHANGED = "CodeChanged"
    """The code ran without a part that is no Python, for example a Markdown fence."""
    LIBRARY_HINT = "LibraryHint"
    """How to get a library that the code needs."""
    NOTES_DROPPED = "NotesDropped"
    """More notes than fit."""


class Note(Model):
    """What a reader must know about the run though it succeeded."""

    kind: Annotated[str, Field(max_length=40, pattern=r"^[A-Z][A-Za-z]*$")]
    """Kind of the note, for programs: ThreadsLeft, FileFlushed, FileNotKept, ValueChanged, KeysCollided, OutputCut,
    CodeChanged, LibraryHint or NotesDropped. Later versions may add kinds."""
    path: Annotated[str, Field(max_length=MAX_NOTE_CHARACTERS)] = ""
    """Part of the result that the note concerns, for example `result.rows[3].price`. Empty if it concerns none."""
    message: Annotated[str, Field(max_length=MAX_NOTE_CHARACTERS)]
    """One sentence for people."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def add_note(notes: list[Note], note: Note) -> list[Note]:
    """Return the notes with another one before them. The last ones give way if there are too many."""
    return [note, *(known for known in notes if known != note)][:MAX_NOTES]
