"""JSON in the one form that all have of the same data, whatever the API server made of numbers, texts and keys."""

import json
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

from mcp_exec_tools.text import format_path

_CHANGEABLE: Final = re.compile("[0-9][.e]|[0-9]{19}|[\ud800-\udfff]")
"""What the API server may write in another way: numbers that are no 64-bit integers, and lone surrogates."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_INT64: Final = range(-(2**63), 2**63)
_LONG_NUMBER: Final = re.compile("[0-9]{19}")
_MAX_BITS: Final = 4096
"""Size of an integer whose digits are written."""
_Link = tuple[()] | tuple[Any, str | int]
"""Place of a part of a value: the place of the whole, and the key or the number of the part."""


def to_stored_json(data: object) -> bytes:
    """Encode JSON data so that it gives the same bytes before the API server has stored it and after.

    The API server (k8s.io/apimachinery/pkg/util/json) returns keys in an order of its own, `1.0` as `1`, an integer of
    more than 64 bits as a float, and U+FFFD for a lone surrogate.
    """
    text = _encode(data)
    if _CHANGEABLE.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        text = _encode(json.loads(text, parse_int=_read_integer, parse_float=_read_float))
    return text.encode()


def find_unstorable(data: object) -> str | None:
    """Return which part of JSON data the API server would change or refuse, and what to send instead, or None."""
    for path, value in _walk(data):
        if isinstance(value, float) and not math.isfinite(value):
            reason = f"{value} is no JSON value, or too large for a double; send null or a string"
            return f"{_format_link(path)}: {reason}".lstrip(": ")
        if _is_long(value):
            return f"{_format_link(path)}: an integer of more than 64 bits would be rounded; send it as a string"
    return None


def find_surrogate(data: object) -> list[str | int] | None:
    """Return the place of the first text or key of JSON data that has a lone surrogate, or None."""
    waiting: list[tuple[_Link, object]] = [((), data)]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, str) and _SURROGATE.search(value):
            return _list_steps(place)
        if isinstance(value, dict):
            if any(map(_SURROGATE.search, value)):
                return _list_steps(place)
            waiting += [((place, name), item) for name, item in reversed(value.items())]
        elif isinstance(value, list):
            waiting += [((place, number), item) for number, item in reversed(list(enumerate(value)))]
    return None


def write_long_integers(data: Any, text: str) -> tuple[Any, str]:
    """Return JSON data with texts in place of integers of more than 64 bits, and the path of the first of them.

    `text` is the data as JSON. Without such an integer, the data is returned as it is, with an empty path.
    """
    if not _LONG_NUMBER.search(text):
        return data, ""
    path = next((_format_link(path, "result") for path, value in _walk(data) if _is_long(value)), "")
    return (_replace_long(data) if path else data), path


def _replace_long(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _replace_long(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_replace_long(item) for item in value]
    if not _is_long(value):
        return value
    bits = value.bit_length()
    return str(value) if bits <= _MAX_BITS else f"<int of {bits} bits>"


def _is_long(value: object) -> bool:
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def _walk(data: object) -> Iterator[tuple[_Link, object]]:
    """Yield each scalar with its place, in order. It is iterative, because the depth is that of a sender."""
    waiting: list[tuple[_Link, object]] = [((), data)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [((path, name), item) for name, item in reversed(value.items())]
        elif isinstance(value, list):
            waiting += [((path, place), item) for place, item in reversed(list(enumerate(value)))]
        else:
            yield path, value


def _format_link(link: _Link, root: str = "") -> str:
    return format_path(_list_steps(link), root)


def _list_steps(link: _Link) -> list[str | int]:
    steps: list[str | int] = []
    while link:
        link, step = link
        steps.append(step)
    return steps[::-1]


def _encode(data: object) -> str:
    return json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _read_integer(text: str) -> int | float:
    return number if len(text) <= 20 and (number := int(text)) in _INT64 else float(text)


def _read_float(text: str) -> int | float:
    number = float(text)
    # both languages write the shortest digits that mean this float, so this is the integer that is stored
    return whole if number.is_integer() and (whole := int(Decimal(text))) in _INT64 else number
