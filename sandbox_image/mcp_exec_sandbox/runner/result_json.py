"""Conversion of the result to JSON: any value becomes a bounded JSON value, and never an error.

docs/reference/values.md has the forms. What is changed or cut is in the notes of the run.
"""

import dataclasses
from collections.abc import Sized
from typing import Any

from mcp_exec_sandbox.notes import Notes
from mcp_exec_sandbox.values.changes import Changes, ValueChange
from mcp_exec_sandbox.values.walk import Walk, escape_surrogates
from mcp_exec_tools.text import measure_json, shorten_json

_ROOT = "result"


@dataclasses.dataclass(frozen=True, kw_only=True)
class JsonResult:
    """A JSON value of at most the requested size, and whether parts were left out."""

    value: Any
    truncated: bool


def convert_to_json(value: object, limit: int, *, notes: Notes) -> JsonResult:
    """Convert `value`. A value of more than `limit` bytes of JSON becomes a string, cut as in `shorten_json`.

    What the conversion changes is added to `notes`.
    """
    if type(value) is str and escape_surrogates(value) is value:
        text, is_cut = shorten_json(value, limit)
        if is_cut:
            notes.add("OutputCut", _describe_cut(value, value, limit, is_head=False), path=_ROOT)
        return JsonResult(value=text, truncated=is_cut)
    walk = _ResultWalk(limit)
    converted = walk.convert(value)
    plain, is_cut = shorten_json(converted, limit, is_head=walk.full)
    if is_cut:
        notes.add("OutputCut", _describe_cut(value, converted, limit, is_head=walk.full), path=_ROOT)
    walk.changes.write(notes)
    return JsonResult(value=plain, truncated=is_cut or walk.cut)


class _ResultWalk(Walk):
    """A conversion that gives everything a form, and collects what it changes."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.changes = Changes(_ROOT)

    def report(self, change: ValueChange, what: str = "") -> None:
        self.changes.add(change, self._path, what)


def _describe_cut(value: object, converted: Any, limit: int, *, is_head: bool) -> str:
    """Return a sentence that says how long the result is and what is left of it."""
    if not is_head:
        size = f"has {measure_json(converted)} bytes as JSON, more than the {limit} of limits.outputBytes"
        return f"It {size}: its middle is cut{'' if isinstance(converted, str) else ', so it is a text'}."
    try:
        items = f", {len(value)} items in all" if isinstance(value, Sized) else ""
    except Exception:
        items = ""
    return f"It has more than the {limit} bytes of limits.outputBytes{items}: it is a text with the beginning."
