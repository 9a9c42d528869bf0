"""All texts in a JSON value as one, so that it can be looked through in one go, and put back changed."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

_SEPARATOR: Final = "\n\0\n"
"""Stands between two texts: no pattern spans it."""
_CARD_SIZED: Final = 10**12
"""Numbers from here on may be those of cards; no other number is looked at."""
_ENCODING: Final = ("utf-8", "surrogatepass")


@dataclass(frozen=True, kw_only=True)
class Span:
    """What was found in the joined texts, by bytes."""

    start: int
    end: int
    kind: str


class TextIndex:
    """The texts of a value: keys and strings, and whole numbers that are as long as a card's."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self._parts: list[str | int] = list(_walk(value))
        pieces = [part if isinstance(part, str) else str(part) for part in self._parts]
        self.data = _SEPARATOR.join(pieces).encode(*_ENCODING)
        self._pieces = pieces

    def original(self, span: Span) -> str | int:
        """What was found, as the number that it is where it is one."""
        part = self._parts[bisect_right(self._starts, span.start) - 1]
        return part if isinstance(part, int) else self.text(span)

    @cached_property
    def _starts(self) -> list[int]:
        starts, at = [], 0
        for piece in self._pieces:
            starts.append(at)
            at += (len(piece) if piece.isascii() else len(piece.encode(*_ENCODING))) + len(_SEPARATOR)
        return starts

    def text(self, span: Span) -> str:
        """What was found."""
        return self.data[span.start : span.end].decode(*_ENCODING)

    def end_of_text(self, at: int) -> int:
        """Where the text ends in which the byte is."""
        found = self.data.find(_SEPARATOR.encode(), at)
        return len(self.data) if found < 0 else found

    def replaced(self, marks: Iterable[tuple[Span, str]]) -> Any:
        """The value with marks in the place of spans, which are in order and don't overlap."""
        starts = self._starts
        by_part: dict[int, list[tuple[Span, str]]] = {}
        for span, mark in marks:
            by_part.setdefault(bisect_right(starts, span.start) - 1, []).append((span, mark))
        changed: dict[int, str] = {}
        for part, found in by_part.items():
            end_of_part = starts[part + 1] - len(_SEPARATOR) if part + 1 < len(starts) else len(self.data)
            pieces, at = [], starts[part]
            for span, mark in found:
                pieces += [self.data[at : span.start].decode(*_ENCODING), mark]
                at = min(span.end, end_of_part)
            pieces.append(self.data[at:end_of_part].decode(*_ENCODING))
            changed[part] = "".join(pieces)
        texts = iter(changed.get(number, part) for number, part in enumerate(self._parts))
        return _rebuilt(self._value, texts)


def _walk(value: Any) -> Iterator[str | int]:
    """In the order of _rebuilt; a stack of its own, because JSON may be nested deeply."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            for name, each in reversed(item.items()):
                stack.append(each)
                stack.append(str(name))
        elif isinstance(item, list):
            stack.extend(reversed(item))
        elif type(item) is int and item >= _CARD_SIZED:
            yield item


def _rebuilt(value: Any, texts: Iterator[str | int]) -> Any:
    if isinstance(value, str) or (type(value) is int and value >= _CARD_SIZED):
        return next(texts)
    if isinstance(value, list):
        return [_rebuilt(each, texts) for each in value]
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    for name in value:
        wanted = new = str(next(texts))
        while new in found or (new != name and new in value):  # two keys that became alike stay two
            new = f"{wanted}_{len(found)}"
        found[new] = _rebuilt(value[name], texts)
    return found
