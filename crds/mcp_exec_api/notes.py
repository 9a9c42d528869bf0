"""Notes on an execution: what a reader must know though the code succeeded."""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from mcp_exec_api.meta import Model

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
        "a part of the result has another form than in Python, because JSON cannot express it",
    )
    KEYS_COLLIDED = "KeysCollided", "different keys of a mapping have the same text"
    OUTPUT_CUT = "OutputCut", "output or result was longer than the limit"
    CODE_CHANGED = "CodeChanged", "the code ran without a part that is no Python, for example a Markdown fence"
    LIBRARY_HINT = "LibraryHint", "how to get a library that the code needs"
    NOTES_DROPPED = "NotesDropped", "more notes than fit"


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
