"""Memory that a JSON value takes, and that the values of a JSON text will take, estimated before anybody parses it."""

import re
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Any, Final

_SCALAR_BYTES = 32
_ENTRY_BYTES = 16
"""Reference from a container, and unused space."""


def weigh(value: Any, *, limit: int) -> int:
    """Return the bytes of memory of a parsed JSON value, or a number above `limit` if they are more.

    Takes time for at most `limit` bytes.
    """
    total, remaining = 0, [value]
    while remaining and total <= limit:
        item = remaining.pop()
        if isinstance(item, str):
            total += getsizeof(item)
        elif isinstance(item, dict):
            total += getsizeof(item) + _ENTRY_BYTES * len(item)
            if total <= limit:
                remaining.extend(item)
                remaining.extend(item.values())
        elif isinstance(item, list):
            total += getsizeof(item) + _ENTRY_BYTES * len(item)
            if total <= limit:
                remaining.extend(item)
        else:
            total += _SCALAR_BYTES
    return total


_STRING: Final = re.compile(rb'"[^"\\\n\r]*(?:\\[^\n\r][^"\\\n\r]*)*(?:"|\\?(?=[\n\r])|\\?\Z)')
"""A string, or its part up to the end of the line or of the text: no string of valid JSON goes beyond its line."""
_PART_BYTES: Final = 1024 * 1024
"""Bytes that are looked at in one step, which takes some milliseconds and holds up all threads."""
_VALUE_BYTES: Final = 64
"""Memory of a list, an empty object, or a short value in one, pointers included."""
_PARSED_ENTRY_BYTES: Final = 130
"""Memory of an entry of an object."""
_WIDE: Final = 5
"""Memory of a byte of JSON in a text that may contain characters beyond Latin-1: up to 4, and the byte itself."""


@dataclass(kw_only=True, eq=False)
class JsonScale:
    """Weighs a JSON text that arrives in parts.

    The weight is an upper bound in bytes, of the text itself and its values. If it is above `exact_above`, punctuation
    in strings is left out of the estimate, which takes longer: 50 ms for a MiB of short strings. Above `limit` it is a
    lower bound.
    """

    limit: int
    exact_above: int
    size: int = 0
    """Bytes of the text."""
    _structure: int = 0
    _is_wide: bool = False
    _parts: list[bytes] = field(default_factory=list)
    """What was only estimated, punctuation in strings included."""
    _open: bytes = b""
    """The begin of a string that a part leaves open, once strings are left out."""
    _is_exact: bool = False
    _last: bytes = b""
    """The last byte, which may begin an escape."""

    @property
    def weight(self) -> int:
        """Bytes of memory."""
        return self.size * (_WIDE if self._is_wide else 1) + self._structure

    def add(self, part: bytes) -> None:
        """Add the next part of the text."""
        for start in range(0, len(part), _PART_BYTES):
            self._add(part[start : start + _PART_BYTES])

    def _add(self, part: bytes) -> None:
        self.size += len(part)
        self._is_wide = self._is_wide or not part.isascii() or b"\\u" in part or (self._last + part[:1]) == b"\\u"
        self._last = part[-1:]
        if self._is_exact:
            self._add_exactly(part)
            return
        self._structure += _weigh_structure(part)
        self._parts.append(part)
        if self.weight > self.exact_above:
            parts, self._parts, self._structure, self._is_exact = self._parts, [], 0, True
            for each in parts:
                self._add_exactly(each)

    def _add_exactly(self, part: bytes) -> None:
        text, self._open, end = self._open + part, b"", 0
        for match in _STRING.finditer(text):  # a loop in Python, so that other threads run meanwhile
            self._structure += _weigh_structure(text[end : match.start()])
            end = match.end()
            if self.weight > self.limit:
                return
        if end == len(text) and end and _is_open(string := text[match.start() :]):
            self._open = b'"\\' if _ends_escaping(string) else b'"'
        self._structure += _weigh_structure(text[end:])


def weigh_json(body: bytes, *, limit: int) -> int:
    """Return an upper bound of the memory that a JSON text and its values take, in bytes. See JsonScale."""
    scale = JsonScale(limit=limit, exact_above=limit)
    scale.add(body)
    return scale.weight


def _is_open(string: bytes) -> bool:
    """Return whether a string has no closing quote."""
    return len(string) == 1 or not string.endswith(b'"') or _ends_escaping(string[:-1])


def _ends_escaping(text: bytes) -> bool:
    """Return whether a text ends with a backslash that is not escaped itself."""
    return (len(text) - len(text.rstrip(b"\\"))) % 2 == 1


def _weigh_structure(text: bytes) -> int:
    containers_and_items = text.count(b"{") + text.count(b"[") + text.count(b",")
    return _VALUE_BYTES * containers_and_items + _PARSED_ENTRY_BYTES * text.count(b":")
