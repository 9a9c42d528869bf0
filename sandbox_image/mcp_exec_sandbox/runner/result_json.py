"""Conversion of the result to JSON: any value becomes a bounded JSON value, and never an error.

Known classes get the JSON that a reader expects (see `simplify`), all others a bounded `repr`. Values are hostile:
properties raise, a `repr` is huge, structures contain themselves.
"""

import dataclasses
import datetime
import enum
import json
import math
import pathlib
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

from mcp_exec_sandbox.notes import Notes
from mcp_exec_tools.text import cut_marker, shorten, shorten_json

MAX_DEPTH = 64
REPR_CHARACTERS = 4096
MAX_INTEGER_BITS = 4096
UNKNOWN = object()
"""Returned for values that have no simpler form."""

_BINARY = (bytes, bytearray, memoryview)
_AS_TEXT = (datetime.timedelta, pathlib.PurePath)
_AS_TEXT_IF_IMPORTED = (("decimal", "Decimal"), ("uuid", "UUID"))
"""Classes of modules that not every idle sandbox imports: without the module, there are no such values."""
_AS_ISO = (datetime.datetime, datetime.date, datetime.time)
_WORD_COST = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class JsonResult:
    """A JSON value of at most the requested size, and whether parts were left out."""

    value: Any
    truncated: bool


def convert_to_json(value: object, limit: int, *, notes: Notes) -> JsonResult:
    """Convert `value`. A value of more than `limit` bytes of JSON becomes a string, cut as in `shorten_json`.

    What the conversion changes is added to `notes`.
    """
    if type(value) is str:
        text, cut = shorten_json(value, limit)
        return JsonResult(value=text, truncated=cut)
    converter = _Converter(limit)
    plain, cut = shorten_json(converter.convert(value, 0), limit, is_head=converter.full)
    return JsonResult(value=plain, truncated=cut or converter.cut)


def _is_of_imported(value: object) -> bool:
    modules = ((sys.modules.get(module), name) for module, name in _AS_TEXT_IF_IMPORTED)
    return any(module is not None and isinstance(value, getattr(module, name)) for module, name in modules)


class _Converter:
    """One conversion: a budget of bytes, and the containers that are being converted (to find cycles).

    Costs are lower bounds, so that only a value that can't fit exceeds the budget.
    """

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._active: set[int] = set()
        self.full = False
        """Whether the budget is used up, so that the converted value is only the beginning."""
        self.cut = False
        """Whether a note replaces a part."""

    def convert(self, value: Any, depth: int) -> Any:
        """Return a plain JSON value. A note replaces a value whose own code raises."""
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
        simplified = simplify(value, self._left)
        if simplified is not UNKNOWN:
            return self.convert(simplified, depth)
        if isinstance(value, (str, int, float)):
            return self.convert(_convert_to_base(value), depth)
        if isinstance(value, _BINARY):
            return self._binary(value)
        if isinstance(value, Mapping):
            return self._object(value.items(), depth)
        if isinstance(value, Set):
            return self._array(_sort_members(value, self._left), depth)
        if isinstance(value, (Sequence, deque)):
            return self._array(value, depth)
        return self._repr(value)

    def _object(self, items: Iterable[tuple[Any, Any]], depth: int) -> dict[str, Any]:
        result: dict[str, Any] = self._pay({}, 2)
        for key, value in items:
            if self.full:
                break
            name = self._text(_convert_key(key))
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

    def _binary(self, value: bytes | bytearray | memoryview) -> str:
        if len(value) <= REPR_CHARACTERS:
            return self._repr(bytes(value))
        self.cut = True
        # A byte has up to four characters in a `repr`.
        head = value[: REPR_CHARACTERS // 4]
        return self._text(repr(bytes(head)) + cut_marker(len(value) - len(head), "bytes"))

    def _repr(self, value: object) -> str:
        text = repr(value)
        self.cut = self.cut or len(text) > REPR_CHARACTERS
        return self._text(shorten(text, REPR_CHARACTERS))

    def _text(self, text: str) -> str:
        kept = text[: max(self._left, 0)]
        self._pay(None, len(text) + 2)
        return kept

    def _pay(self, value: Any, cost: int) -> Any:
        self._left -= cost
        self.full = self.full or self._left < 0
        return value


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


def _convert_key(key: object) -> str:
    """Return an object's key: the text of the value as JSON."""
    if isinstance(key, str):
        return str.__str__(key)
    plain = convert_to_json(key, REPR_CHARACTERS, notes=Notes()).value
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def simplify(value: Any, room: int) -> Any:
    """Return a simpler value (text, number, list, dict) with the same meaning, or `UNKNOWN`.

    Values of libraries are recognized by module and shape, so that no library is imported. Of large arrays and tables
    only the part that can fit into the result is read.

    Args:
        value: a value that is no plain JSON.
        room: bytes that the result may still use.
    """
    if isinstance(value, type):
        return UNKNOWN
    if isinstance(value, enum.Enum):
        return value.value
    library = str(type(value).__module__).partition(".")[0]
    if (convert := _LIBRARIES.get(library)) is not None:
        return convert(value, room)
    if isinstance(value, _AS_ISO):
        return value.isoformat()
    if isinstance(value, _AS_TEXT) or _is_of_imported(value):
        return str(value)
    if dataclasses.is_dataclass(value):
        return {field.name: read_attribute(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=False))
    if callable(dump := getattr(type(value), "model_dump", None)):
        return dump(value)
    return UNKNOWN


def read_attribute(owner: object, name: str) -> Any:
    """Return an attribute, or a note if reading it raises."""
    try:
        return getattr(owner, name)
    except Exception as error:
        return f"<{name}: {type(error).__name__}>"


def _simplify_numpy(value: Any, room: int) -> Any:
    if not hasattr(value, "tolist"):
        return UNKNOWN
    if getattr(value, "size", 1) * 2 > room:
        # Too large in any case: only the part that fits becomes Python objects.
        value = value.reshape(-1)[: room // 2 + 1]
    plain = value.tolist()
    # longdouble and clongdouble return themselves.
    return str(plain) if type(plain) is type(value) else plain


def _simplify_pandas(value: Any, room: int) -> Any:
    kind = type(value).__name__
    if kind in ("NAType", "NaTType"):
        return None
    if kind == "DataFrame":
        frame = value.iloc[: _count_rows(room, max(1, value.shape[1]))]
        if type(frame.index).__name__ != "RangeIndex":
            frame = frame.reset_index()
        return frame.to_dict(orient="records")
    if kind == "Series":
        series = value.iloc[: _count_rows(room, 1)]
        return series.tolist() if type(series.index).__name__ == "RangeIndex" else dict(series.items())
    if hasattr(value, "tolist"):
        return value[: _count_rows(room, 1)].tolist()
    return value.isoformat() if isinstance(value, _AS_ISO) else str(value)


def _count_rows(room: int, width: int) -> int:
    """Return the number of rows that can fit, and one more so that the result is known to be cut."""
    return max(room, 0) // (2 * width) + 1


_LIBRARIES: dict[str, Callable[[Any, int], Any]] = {"numpy": _simplify_numpy, "pandas": _simplify_pandas}
