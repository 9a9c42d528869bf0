"""Notes of a run: the kinds of the sandbox are those of the API, and their number is bounded."""

from mcp_exec_api.code_findings import MAX_NOTE_CHARACTERS, Note, NoteKind
from mcp_exec_api.code_findings import MAX_NOTES as MAX_OF_API
from mcp_exec_sandbox.protocol import KINDS, MAX_NOTES, NOTE_CHARACTERS, Notes, parse_notes


def test_the_sandbox_has_the_kinds_and_bounds_of_the_api() -> None:
    of_operator = {NoteKind.NO_TOOL_MATCHES}
    assert list(KINDS) == [str(kind) for kind in NoteKind if kind not in of_operator]
    assert (MAX_NOTES, NOTE_CHARACTERS) == (MAX_OF_API, MAX_NOTE_CHARACTERS)


def test_what_does_not_fit_is_counted() -> None:
    notes = Notes()
    for number in range(20):
        notes.add("ValueChanged", f"number {number}", path=f"result[{number}]")
    *kept, last = notes.to_message()
    assert len(kept) == MAX_NOTES - 1
    assert last == {"kind": "NotesDropped", "path": "", "message": "5 more notes do not fit here."}


def test_a_repeated_note_is_kept_once() -> None:
    notes = Notes()
    notes.add("ValueChanged", "x")
    notes.add("ValueChanged", "x")
    assert len(notes.to_message()) == 1


def test_notes_pass_a_message_unchanged() -> None:
    notes = Notes()
    for number in range(30):
        notes.add("ValueChanged", "m" * 500, path=f"{number}" * 300)
    message = notes.to_message()
    assert list(parse_notes(message)) == message
    assert [Note.model_validate(note).kind for note in message]
