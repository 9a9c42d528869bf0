"""All texts of a JSON value, joined so that one search covers them, and replaceable in place."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

_SEPARATOR: Final = "\n\0\n"
"""Separates two texts; no pattern spans it."""
_MIN_CARD_NUMBER: Final = 10**12
"""Whole numbers from here on may be card numbers; smaller ones are not scanned."""
_ENCODING: Final = ("utf-8", "surrogatepass")


@dataclass(frozen=True, kw_only=True)
class Span:
    """A finding in the joined texts, by byte offsets."""

    start: int
    end: int
    kind: str


class TextIndex:
    """The keys and strings of a JSON value, and its whole numbers that are as long as card numbers."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self._parts: list[str | int] = list(_iterate_texts(value))
        pieces = [part if isinstance(part, str) else str(part) for part in self._parts]
        self.data = _SEPARATOR.join(pieces).encode(*_ENCODING)
        self._pieces = pieces

    def get_original(self, span: Span) -> str | int:
        """Return the finding, as a number if it is one."""
        part = self._parts[bisect_right(self._starts, span.start) - 1]
        return part if isinstance(part, int) else self.get_text(span)

    @cached_property
    def _starts(self) -> list[int]:
        starts, at = [], 0
        for piece in self._pieces:
            starts.append(at)
            at += (len(piece) if piece.isascii() else len(piece.encode(*_ENCODING))) + len(_SEPARATOR)
        return starts

    def get_text(self, span: Span) -> str:
        """Return the finding."""
        return self.data[span.start : span.end].decode(*_ENCODING)

    def find_end_of_text(self, at: int) -> int:
        """Return the end of the text that contains a byte offset."""
        end = self.data.find(_SEPARATOR.encode(), at)
        return len(self.data) if end < 0 else end

    def replace(self, replacements: Iterable[tuple[Span, str]]) -> Any:
        """Return the value with spans replaced; the spans are in order and do not overlap."""
        starts = self._starts
        by_part: dict[int, list[tuple[Span, str]]] = {}
        for span, text in replacements:
            by_part.setdefault(bisect_right(starts, span.start) - 1, []).append((span, text))
        changed: dict[int, str] = {}
        for part, spans in by_part.items():
            end_of_part = starts[part + 1] - len(_SEPARATOR) if part + 1 < len(starts) else len(self.data)
            pieces, at = [], starts[part]
            for span, text in spans:
                pieces += [self.data[at : span.start].decode(*_ENCODING), text]
                at = min(span.end, end_of_part)
            pieces.append(self.data[at:end_of_part].decode(*_ENCODING))
            changed[part] = "".join(pieces)
        texts = iter(changed.get(number, part) for number, part in enumerate(self._parts))
        return _rebuild(self._value, texts)


def _iterate_texts(value: Any) -> Iterator[str | int]:
    """Yield the texts in the order of _rebuild, with an explicit stack because JSON may be nested deeply."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            for name, member in reversed(item.items()):
                stack.append(member)
                stack.append(str(name))
        elif isinstance(item, list):
            stack.extend(reversed(item))
        elif type(item) is int and item >= _MIN_CARD_NUMBER:
            yield item


def _rebuild(value: Any, texts: Iterator[str | int]) -> Any:
    if isinstance(value, str) or (type(value) is int and value >= _MIN_CARD_NUMBER):
        return next(texts)
    if isinstance(value, list):
        return [_rebuild(item, texts) for item in value]
    if not isinstance(value, dict):
        return value
    members: dict[str, Any] = {}
    for name in value:
        wanted = new = str(next(texts))
        while new in members or (new != name and new in value):  # two keys with equal replacements stay two
            new = f"{wanted}_{len(members)}"
        members[new] = _rebuild(value[name], texts)
    return members
