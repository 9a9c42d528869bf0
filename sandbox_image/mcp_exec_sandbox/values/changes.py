"""Changes that a conversion to JSON makes, found by the walk through the value and named by their paths."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from mcp_exec_sandbox.protocol import NoteKind, Notes
from mcp_exec_tools.text import format_path

UNKNOWN = object()
"""Returned for values that have no simpler form."""

_MAX_MESSAGES = 32


class Missing:
    """A library's mark of a value that is not there."""

    def __init__(self, name: str) -> None:
        self.name = name


class Pairs:
    """An object whose keys may repeat."""

    def __init__(self, items: Iterable[tuple[Any, Any]]) -> None:
        self.items = items


class LabelledRows:
    """LabelledRows with the same labels, which may repeat."""

    def __init__(self, labels: Sequence[Any], rows: Iterable[Sequence[Any]], *, why: str = "") -> None:
        self.labels = labels
        self.rows = rows
        self.why = why
        """Why the value is a list of records and no object, if its other values are objects."""


class ValueRefused(Exception):
    """A value that cannot be an argument of a tool. The text has its path."""


class ValueChange(NamedTuple):
    """A sort of change: the note on a result, and why an argument of a tool is refused."""

    kind: NoteKind
    note: str
    refusal: str
    """Text after the path in the error. Empty if an argument may have it."""


NOT_FINITE = ValueChange(
    "ValueChanged",
    "JSON has no {what}, so this is null.",
    "is {what}, which JSON does not have: pass None, or leave it out",
)
WHOLE_FLOAT = ValueChange(
    "ValueChanged", "JSON has one sort of number: a float without a fraction, such as 2.0, is written as 2.", ""
)
MISSING = ValueChange("ValueChanged", "A missing value ({what}) is null.", "")
NEGATIVE_ZERO = ValueChange("ValueChanged", "-0.0 is 0: the sign of a zero does not survive.", "")
LONG_INTEGER = ValueChange("ValueChanged", "An integer of more than 64 bits is a text with all its digits.", "")
INEXACT_INTEGER = ValueChange(
    "ValueChanged",
    "It is exact here, but clients that read numbers as doubles, such as JavaScript, round integers beyond 2**53.",
    "",
)
HUGE_INTEGER = ValueChange("OutputCut", "An integer of {what} bits is too long.", "has {what} bits: pass str(value)")
SURROGATE = ValueChange(
    "ValueChanged",
    "A lone surrogate is no Unicode text, so it is written as its escape, such as \\ud800.",
    "has a lone surrogate, which is no Unicode text: pass text.encode('utf-8', 'replace').decode()",
)
NO_FORM = ValueChange(
    "ValueChanged",
    "{what} has no JSON form, so this is its repr. Return a dict, a list or a text instead.",
    "is of type {what}, which has no JSON form: pass a dict of its fields, or str(value)",
)
NOT_AWAITED = ValueChange(
    "ValueChanged",
    "A coroutine has no value before it is awaited, so this is its repr: write `await {what}(...)`.",
    "is a coroutine: write `await {what}(...)`",
)
NO_BINARY_FORM = ValueChange(
    "ValueChanged",
    "JSON has no {what}, so this is the repr.",
    "is {what}, which JSON does not have: pass data.decode(), or base64.b64encode(data).decode()",
)
INEXACT_DECIMAL = ValueChange("ValueChanged", "", "would be rounded as a number: pass str(value), or float(value)")
COLLIDED = ValueChange(
    "KeysCollided",
    "Another key of this object has the same text, so this one has a number after it.",
    "is a key whose text another key of the object has: pass keys with different texts",
)
RECORDS = ValueChange("KeysCollided", "{what}, so this is a list of records and no object.", "")
NO_TEXT_KEY = ValueChange("ValueChanged", "", "has a key of type {what}: pass texts as keys")
PARTLY_READ = ValueChange(
    "OutputCut",
    "Only the first {what} were read from this iterator, and they are used up.",
    "has more than {what} in its iterator: pass a list",
)
CYCLE = ValueChange("OutputCut", "It contains itself.", "contains itself")
TOO_DEEP = ValueChange("OutputCut", "It has more than {what} levels.", "has more than {what} levels")
FAILED = ValueChange("ValueChanged", "{what} was raised by its code.", "raised {what} while it was converted")
LONG_REPR = ValueChange("OutputCut", "Its repr or its bytes are cut in the middle.", "")


class Changes:
    """The changes of one conversion. Changes of one sort are one note, with the path of the first."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._found: dict[tuple[NoteKind, str], tuple[str, int]] = {}

    def add(self, change: ValueChange, path: Sequence[str | int], what: str = "") -> None:
        """Take note of a change."""
        key = (change.kind, change.note.replace("{what}", what))
        if (known := self._found.get(key)) is not None:
            self._found[key] = (known[0], known[1] + 1)
        elif len(self._found) < _MAX_MESSAGES:
            self._found[key] = (format_path(path, self._root), 1)

    def write(self, notes: Notes) -> None:
        """Add the changes to the notes of the run."""
        for (kind, message), (path, count) in self._found.items():
            more = f" So in {count} places." if count > 1 else ""
            notes.add(kind, message + more, path=path)
