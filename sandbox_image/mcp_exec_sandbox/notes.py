"""Notes on a run: what a reader must know though the code succeeded.

The runner collects them, the supervisor checks and bounds them and adds its own, and the event `end` has them. They
become `status.notes` of the execution; `mcp_exec_api.code_findings` has the kinds and their meanings.
"""

from collections.abc import Sequence
from typing import Literal, TypedDict, get_args

from mcp_exec_tools.text import shorten_line

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
    "LibraryHint",
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
