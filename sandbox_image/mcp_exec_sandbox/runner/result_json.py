"""The result as JSON: whatever the code ends with becomes a bounded JSON value, and never an error.

Known classes get the JSON that a reader expects (see `simplify`), the rest a bounded `repr`. Objects are hostile:
properties raise, `repr` is huge, structures contain themselves.
"""

import dataclasses
import json
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from mcp_exec_sandbox.runner.simplify import UNKNOWN, simplify

MAX_DEPTH = 64
REPR_CHARACTERS = 4096
MAX_INTEGER_BITS = 4096

_BINARY = (bytes, bytearray, memoryview)
_WORD_COST = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Converted:
    """A JSON value that takes at most the asked number of bytes, and whether something had to be left out."""

    value: Any
    truncated: bool


def to_json(value: object, limit: int) -> Converted:
    """Convert `value`; what is larger than `limit` bytes of JSON becomes a string that holds its beginning."""
    converter = _Converter(limit)
    plain = converter.convert(value, 0)
    if not converter.full and encoded_size(plain) <= limit:
        return Converted(value=plain, truncated=converter.cut)
    text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
    return Converted(value=bounded_text(text, limit), truncated=True)


def encoded_size(plain: object) -> int:
    """Bytes that a plain value takes as JSON in UTF-8."""
    return len(json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))


def bounded_text(text: str, limit: int) -> str:
    """The beginning of `text` that takes at most `limit` bytes as a JSON string."""
    text = text[: max(limit, 0)]
    while text and (size := encoded_size(text)) > limit:
        text = text[: min(len(text) - 1, len(text) * limit // size)]
    return text


class _Converter:
    """One conversion: a budget of bytes, and the containers that are being converted (to find cycles).

    Costs are lower bounds, so that only what can't fit runs out of budget.
    """

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._active: set[int] = set()
        self.full = False
        """The budget is used up; the value is only the beginning."""
        self.cut = False
        """A part was left out; a note stands in its place."""

    def convert(self, value: Any, depth: int) -> Any:
        """A plain JSON value; errors of the value's own code become a note."""
        if self.full:
            return None
        try:
            plain = self._scalar(value)
            return self._container(value, depth) if plain is UNKNOWN else plain
        except MemoryError:
            raise
        except Exception as error:
            self.cut = True
            return self._text(f"<{type(value).__name__}: {type(error).__name__} while it was converted>")

    def _scalar(self, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            return self._text(value)
        if value is None or kind is bool:
            return self._pay(value, _WORD_COST)
        if kind is int:
            return self._integer(value)
        if kind is float:
            return self._pay(value if math.isfinite(value) else None, _WORD_COST - 1)
        return UNKNOWN

    def _container(self, value: Any, depth: int) -> Any:
        if id(value) in self._active:
            self.cut = True
            return self._text("<cycle>")
        if depth >= MAX_DEPTH:
            self.cut = True
            return self._text(f"<{type(value).__name__}: more than {MAX_DEPTH} levels deep>")
        self._active.add(id(value))
        try:
            return self._structure(value, depth + 1)
        finally:
            self._active.discard(id(value))

    def _structure(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is dict:
            return self._object(value.items(), depth)
        if kind is list:
            return self._array(value, depth)
        simpler = simplify(value, self._left)
        if simpler is not UNKNOWN:
            return self.convert(simpler, depth)
        if isinstance(value, (str, int, float)):
            return self.convert(_base_value(value), depth)
        if isinstance(value, _BINARY):
            return self._repr(bytes(value[:REPR_CHARACTERS]), cut=len(value) > REPR_CHARACTERS)
        if isinstance(value, Mapping):
            return self._object(value.items(), depth)
        if isinstance(value, Set):
            return self._array(_ordered(value, self._left), depth)
        if isinstance(value, (Sequence, deque)):
            return self._array(value, depth)
        return self._repr(value)

    def _object(self, items: Iterable[tuple[Any, Any]], depth: int) -> dict[str, Any]:
        result: dict[str, Any] = self._pay({}, 2)
        for key, value in items:
            if self.full:
                break
            name = self._text(_key_text(key))
            result[name] = self.convert(value, depth)
        return result

    def _array(self, items: Iterable[Any], depth: int) -> list[Any]:
        result: list[Any] = self._pay([], 2)
        for item in items:
            if self.full:
                break
            result.append(self.convert(item, depth))
        return result

    def _integer(self, value: int) -> Any:
        if value.bit_length() > MAX_INTEGER_BITS:
            self.cut = True
            return self._text(f"<int of {value.bit_length()} bits>")
        return self._pay(value, 1 + value.bit_length() // 4)

    def _repr(self, value: object, *, cut: bool = False) -> str:
        text = repr(value)
        if cut or len(text) > REPR_CHARACTERS:
            self.cut = True
            text = text[: REPR_CHARACTERS - 3] + "..."
        return self._text(text)

    def _text(self, text: str) -> str:
        kept = text[: max(self._left, 0)]
        self._pay(None, len(text) + 2)
        return kept

    def _pay(self, value: Any, cost: int) -> Any:
        self._left -= cost
        self.full = self.full or self._left < 0
        return value


def _base_value(value: str | int | float) -> str | int | float:
    """An instance of a subclass as the plain value."""
    if isinstance(value, str):
        return str.__str__(value)
    return int.__int__(value) if isinstance(value, int) else float.__float__(value)


def _ordered(value: Set[Any], room: int) -> Iterable[Any]:
    """A set's members in a stable order where they have one and can fit."""
    if len(value) > max(room, 0):
        return value
    try:
        return sorted(value)
    except TypeError:
        return value


def _key_text(key: object) -> str:
    """A key of an object: the text that the key's value has as JSON."""
    if isinstance(key, str):
        return str.__str__(key)
    plain = to_json(key, REPR_CHARACTERS).value
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
