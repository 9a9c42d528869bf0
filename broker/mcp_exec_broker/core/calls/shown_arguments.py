"""Arguments of a call as an approver sees them: every parameter's name, each value cut by itself, and a digest. Pure.

The code chooses the arguments, so neither their order nor their size decides what is shown: parameters of the tool's
schema come first, both groups are sorted, and a large value leaves the others their share.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_MAX_CHARS: Final = 3072
"""Characters for all values and names together; names and marks of cut values may take more."""
_MAX_NAMES: Final = 40
_MAX_ITEMS: Final = 40
_MAX_DEPTH: Final = 5
_NAME_CHARS: Final = 48
_MIN_CHARS: Final = 24
"""Minimum characters for a nested value: with fewer, only its size is shown."""
_ESCAPES: Final = re.compile(r"\\u[0-9a-f]{4}|\\.|[^\\]")


@dataclass(frozen=True, kw_only=True)
class ShownArguments:
    """Arguments for an approver."""

    text: str
    """JSON with printable characters only, at most 12 KiB."""
    is_complete: bool
    """Whether the text has all of the arguments, except what was redacted."""


def show_arguments(arguments: Mapping[str, Any], *, declared: Iterable[str] = ()) -> ShownArguments:
    """Return the arguments, which must be redacted. `declared` are the parameters of the tool's schema."""
    writer = _Writer()
    known = set(declared)
    names = sorted(arguments, key=lambda name: (name not in known, name))
    text = writer.write_object(arguments, names, room=_MAX_CHARS, depth=0)
    return ShownArguments(text=text, is_complete=not writer.has_cut)


def escape_unprintable(text: str) -> str:
    """Return JSON text with escapes for all characters that are not printable: controls, bidi marks, odd spaces."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escape(character) for character in text)


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def _quote(text: str) -> str:
    return escape_unprintable(json.dumps(text, ensure_ascii=False))


def _measure(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False))


class _Writer:
    def __init__(self) -> None:
        self.has_cut = False

    def write(self, value: Any, *, room: int, depth: int) -> str:
        if isinstance(value, str):
            return self._write_text(value, room=room)
        size, room = _measure(value), max(room, _MIN_CHARS)
        if size <= room:
            text = escape_unprintable(json.dumps(value, ensure_ascii=False, sort_keys=True))
            if len(text) <= room:
                return text
        if not isinstance(value, Mapping | list):
            return self._cut(f"a number of {size} characters")
        if depth > _MAX_DEPTH or room == _MIN_CHARS:
            return self._cut(f"{len(value)} {'items' if isinstance(value, list) else 'parameters'}, {size} characters")
        if isinstance(value, list):
            return self._write_list(value, room=room, depth=depth)
        return self.write_object(value, sorted(value), room=room, depth=depth)

    def write_object(self, value: Mapping[str, Any], names: Sequence[str], *, room: int, depth: int) -> str:
        # all names of parameters; names of a nested object as long as there is room
        shown = names[: _MAX_NAMES if depth == 0 else min(_MAX_NAMES, max(room // (2 * _MIN_CHARS), 1))]
        quoted = [self._write_text(name, room=_NAME_CHARS if depth == 0 else _MIN_CHARS) for name in shown]
        rooms = _share([value[name] for name in shown], room - sum(len(name) + 4 for name in quoted))
        parts = [
            f"{name}: {self.write(value[key], room=part, depth=depth + 1)}"
            for name, key, part in zip(quoted, shown, rooms, strict=True)
        ]
        if len(names) > len(shown):
            parts.append(f'"…": {self._cut(f"{len(names) - len(shown)} more parameters")}')
        return "{" + ", ".join(parts) + "}"

    def _write_list(self, value: list[Any], *, room: int, depth: int) -> str:
        shown = value[: max(min(_MAX_ITEMS, room // _MIN_CHARS), 1)] if _measure(value) > room else value
        rooms = _share(shown, room - 2 * len(shown))
        parts = [self.write(item, room=part, depth=depth + 1) for item, part in zip(shown, rooms, strict=True)]
        if len(value) > len(shown):
            parts.append(self._cut(f"{len(value) - len(shown)} more items"))
        return "[" + ", ".join(parts) + "]"

    def _write_text(self, text: str, *, room: int) -> str:
        room = max(room, _MIN_CHARS)
        if len(text) <= room and len(quoted := _quote(text)) <= room + 2:
            return quoted
        self.has_cut = True
        head = "".join(_take(_ESCAPES.findall(_quote(text[:room])[1:-1]), room * 2 // 3))
        tail = "".join(reversed(_take(reversed(_ESCAPES.findall(_quote(text[-room:])[1:-1])), room // 3)))
        return f'"{head}… [{len(text)} characters] …{tail}"'

    def _cut(self, what: str) -> str:
        self.has_cut = True
        return f'"… [{what}]"'


def _take(pieces: Iterable[str], room: int) -> list[str]:
    taken: list[str] = []
    for piece in pieces:
        room -= len(piece)
        if room < 0:
            break
        taken.append(piece)
    return taken


def _share(values: Sequence[Any], room: int) -> list[int]:
    """Return the characters for each value: small ones get what they need, the others equal shares of the rest."""
    rooms = [0] * len(values)
    sizes = sorted((_measure(value), number) for number, value in enumerate(values))
    for done, (size, number) in enumerate(sizes):
        rooms[number] = min(size + size // 8, max(room, 0) // (len(values) - done))
        room -= rooms[number]
    return rooms
