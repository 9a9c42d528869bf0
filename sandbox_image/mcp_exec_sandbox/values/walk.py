"""Walk through a value that converts it to plain JSON within a budget of bytes.

Values are hostile: properties raise, a `repr` is huge, structures contain themselves, iterators do not end.
"""

import io
import json
import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, MappingView, Sequence, Set
from itertools import islice
from types import CoroutineType
from typing import Any

from mcp_exec_sandbox.values import changes
from mcp_exec_sandbox.values.changes import UNKNOWN, LabelledRows, Missing, Pairs, ValueChange
from mcp_exec_sandbox.values.forms import find_form
from mcp_exec_tools.text import cut_marker, shorten

MAX_DEPTH = 64
ITERATOR_SECONDS = 2.0
"""Time limit for reading the iterators of a value. A call of `next` that does not return ends with the run."""
REPR_CHARACTERS = 4096
_MAX_INTEGER_BITS = 1 << 20
_PLAIN_BITS = 2048
"""Largest size of an integer that `str` writes whatever limit the code has set."""
_EXACT_BITS = 53
_INT64 = range(-(2**63), 2**63)
_BINARY = (bytes, bytearray, memoryview)
_WORD_COST = 4


class Walk(ABC):
    """One conversion: a budget of bytes, the path, and the containers that are being converted (to find cycles).

    Costs are lower bounds, so that only a value that can't fit exceeds the budget.
    """

    max_items = 1000
    """Items that are read from an iterator."""

    def __init__(self, limit: int) -> None:
        self.full = False
        """Whether the budget is used up, so that the converted value is only the beginning."""
        self.cut = False
        """Whether a part is left out."""
        self._left = limit
        self._path: list[str | int] = []
        self._active: set[int] = set()
        self._deadline: float | None = None

    @abstractmethod
    def report(self, change: ValueChange, what: str = "") -> None:
        """Report a change of the value at the current path."""

    def convert(self, value: Any, depth: int = 0) -> Any:
        """Return a plain JSON value. A text replaces a value whose own code raises."""
        if self.full:
            return None
        place = len(self._path)
        try:
            plain = self._convert_scalar(value)
            return self._convert_container(value, depth) if plain is UNKNOWN else plain
        except (MemoryError, changes.ValueRefused):
            raise
        except Exception as error:
            del self._path[place:]
            self.report(changes.FAILED, type(error).__name__)
            return self._text(f"<{type(value).__name__}: {type(error).__name__} while it was converted>")

    def _convert_scalar(self, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            return self._text(value)
        if value is None or kind is bool:
            return self._pay(value, _WORD_COST)
        if kind is int:
            return self._integer(value)
        if kind is float:
            return self._float(value)
        return UNKNOWN

    def _convert_container(self, value: Any, depth: int) -> Any:
        if id(value) in self._active:
            return self._leave_out("<cycle>", changes.CYCLE)
        if depth >= MAX_DEPTH:
            text = f"<{type(value).__name__}: more than {MAX_DEPTH} levels deep>"
            return self._leave_out(text, changes.TOO_DEEP, str(MAX_DEPTH))
        self._active.add(id(value))
        try:
            return self._convert_structure(value, depth + 1)
        finally:
            self._active.discard(id(value))

    def _convert_structure(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is dict:
            return self._object(value.items(), depth)
        if kind is list or kind is tuple:
            return self._array(value, depth)
        if kind is Missing:
            self.report(changes.MISSING, value.name)
            return self._pay(None, _WORD_COST)
        if kind is Pairs:
            return self._object(value.items, depth)
        if kind is LabelledRows:
            return self._table(value, depth)
        if (form := self._find_form(value)) is not UNKNOWN:
            return self.convert(form, depth)
        if isinstance(value, (str, int, float)):
            return self.convert(_convert_to_base(value), depth)
        if isinstance(value, _BINARY):
            return self._binary(value)
        return self._convert_collection(value, depth)

    def _find_form(self, value: Any) -> Any:
        return find_form(value, self._left)

    def _convert_collection(self, value: Any, depth: int) -> Any:
        if isinstance(value, Mapping):
            return self._object(value.items(), depth)
        if isinstance(value, (set, frozenset)):
            return self._array(_sort_members(value, self._left), depth)
        if isinstance(value, (Set, MappingView, Sequence, deque)):
            return self._array(value, depth)  # type: ignore[arg-type]
        if isinstance(value, Iterator) and not isinstance(value, io.IOBase):
            return self._array(self._read(value), depth)
        if isinstance(value, AsyncIterator):
            return self._read_async(value, depth)
        return self._repr(value)

    def _read_async(self, iterator: AsyncIterator[Any], depth: int) -> Any:
        return self._repr(iterator)

    def _object(self, items: Iterable[tuple[Any, Any]], depth: int) -> dict[str, Any]:
        result: dict[str, Any] = self._pay({}, 2)
        counts: dict[str, int] = {}
        path = self._path
        path.append("")
        for key, value in items:
            if self.full:
                break
            if type(key) is not str:
                path.pop()  # changes of a key are at the object
                key = self._convert_key(key)
                path.append("")
            path[-1] = key
            name = path[-1] = self._text(key)
            if name in result:
                name = path[-1] = self._number_key(name, result, counts)
                self.report(changes.COLLIDED)
            result[name] = self.convert(value, depth)
        path.pop()
        return result

    def _array(self, items: Iterable[Any], depth: int) -> list[Any]:
        result: list[Any] = self._pay([], 2)
        path = self._path
        path.append(0)
        for place, item in enumerate(items):
            if self.full:
                break
            path[-1] = place
            result.append(self.convert(item, depth))
        path.pop()
        return result

    def _table(self, table: LabelledRows, depth: int) -> list[Any]:
        if table.why:
            self.report(changes.RECORDS, table.why)
        names: dict[str, Any] = {}
        counts: dict[str, int] = {}
        for label in table.labels:
            name = self._clean(label if type(label) is str else self._convert_key(label))
            if name in names:
                name = self._number_key(name, names, counts)
                self._path += [0, name]
                self.report(changes.COLLIDED)
                del self._path[-2:]
            names[name] = None
        return self._array((dict(zip(names, row, strict=True)) for row in table.rows), depth)

    def _read(self, iterator: Iterator[Any]) -> Iterator[Any]:
        """Return the first items of an iterator. It is consumed by them and by one more."""
        if self._deadline is None:
            self._deadline = time.monotonic() + ITERATOR_SECONDS
        for place, item in enumerate(islice(iterator, self.max_items + 1)):
            if place == self.max_items or time.monotonic() > self._deadline:
                self._path.pop()
                self.report(changes.PARTLY_READ, f"{place} items")
                self._path.append(place)
                self.cut = True
                return
            yield item

    def _convert_key(self, key: object) -> str:
        """Return an object's key: the text of the value as JSON."""
        if isinstance(key, str):
            return str.__str__(key)
        if type(key) is int and (digits := write_digits(key, REPR_CHARACTERS)):
            return digits
        left, self._left = self._left, REPR_CHARACTERS
        try:
            plain = self.convert(key, MAX_DEPTH // 2)
        finally:
            self._left, self.full = left, left < 0
        text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
        if len(text) > REPR_CHARACTERS:
            self.report(changes.LONG_REPR)
            self.cut = True
        return shorten(text, REPR_CHARACTERS)

    def _number_key(self, name: str, known: Mapping[str, Any], counts: dict[str, int]) -> str:
        """Return the name with a number that no key has yet. Each number is tried once for a name."""
        number = counts.get(name, 1) + 1
        while f"{name} ({number})" in known:
            number += 1
        counts[name] = number
        return f"{name} ({number})"

    def _integer(self, value: int) -> Any:
        bits = value.bit_length()
        if bits <= _EXACT_BITS:
            return self._pay(value, 1 + bits // 4)
        if value in _INT64:
            if int(float(value)) != value:
                self.report(changes.INEXACT_INTEGER)
            return self._pay(value, 1 + bits // 4)
        return self._long_integer(value)

    def _long_integer(self, value: int) -> Any:
        digits = write_digits(value, self._left)
        if digits is None:
            bits = str(value.bit_length())
            return self._leave_out(f"<int of {bits} bits>", changes.HUGE_INTEGER, bits)
        self.report(changes.LONG_INTEGER)
        return self._text(digits)

    def _float(self, value: float) -> Any:
        if not math.isfinite(value):
            text = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
            self.report(changes.NOT_FINITE, text)
            return self._pay(None, _WORD_COST)
        if value == 0 and math.copysign(1, value) < 0:
            self.report(changes.NEGATIVE_ZERO)
        return self._pay(value, _WORD_COST - 1)

    def _binary(self, value: bytes | bytearray | memoryview) -> str:
        self.report(changes.NO_BINARY_FORM, type(value).__name__)
        size = memoryview(value).nbytes
        if size <= REPR_CHARACTERS:
            return self._repr_text(repr(bytes(value)))
        # A byte has up to four characters in a `repr`.
        head = bytes(memoryview(value).cast("B")[: REPR_CHARACTERS // 4])
        return self._leave_out(repr(head) + cut_marker(size - len(head), "bytes"), changes.LONG_REPR)

    def _repr(self, value: object) -> str:
        if isinstance(value, CoroutineType):
            self.report(changes.NOT_AWAITED, value.__qualname__.rpartition("<locals>.")[2])
        else:
            self.report(changes.NO_FORM, type(value).__name__)
        return self._repr_text(repr(value))

    def _repr_text(self, text: str) -> str:
        if len(text) > REPR_CHARACTERS:
            return self._leave_out(shorten(text, REPR_CHARACTERS), changes.LONG_REPR)
        return self._text(text)

    def _leave_out(self, text: str, change: ValueChange, what: str = "") -> str:
        """Return the text that stands for a value, or for a part of it."""
        self.report(change, what)
        self.cut = True
        return self._text(text)

    def _text(self, text: str) -> str:
        kept = self._clean(text[: max(self._left, 0)])
        self._pay(None, len(text) + 2)
        return kept

    def _clean(self, text: str) -> str:
        cleaned = escape_surrogates(text)
        if cleaned is not text:
            self.report(changes.SURROGATE)
        return cleaned

    def _pay(self, value: Any, cost: int) -> Any:
        self._left -= cost
        self.full = self.full or self._left < 0
        return value


def escape_surrogates(text: str) -> str:
    """Return the text itself, or if it has lone surrogates, with escapes such as `\\\\ud800` in their place."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def write_digits(value: int, room: int) -> str | None:
    """Return the decimal digits of an integer, or None if they need more than `room` characters."""
    if value.bit_length() > min(_MAX_INTEGER_BITS, 4 * max(room, 0)):
        return None
    if value.bit_length() <= _PLAIN_BITS:
        return str(value)
    # Imported for such an integer, not in every idle sandbox. It has no limit of digits, and takes less time.
    from decimal import Decimal

    return str(Decimal(value))


def _convert_to_base(value: str | int | float) -> str | int | float:
    """Convert an instance of a subclass to the plain value."""
    if isinstance(value, str):
        return str.__str__(value)
    return int.__int__(value) if isinstance(value, int) else float.__float__(value)


def _sort_members(value: Set[Any], room: int) -> Iterable[Any]:
    """Return a set's members, sorted if they can be sorted and can fit."""
    if len(value) > max(room, 0):
        return value
    try:
        return sorted(value)
    except TypeError:
        return value
