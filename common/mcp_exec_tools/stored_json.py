"""JSON in the one form that all have of the same data, whatever the API server made of numbers, texts and keys."""

import json
import re
from decimal import Decimal
from typing import Final

_CHANGEABLE: Final = re.compile("[0-9][.e]|[0-9]{19}|[\ud800-\udfff]")
"""What the API server may write in another way: numbers that are no 64-bit integers, and lone surrogates."""
_INT64: Final = range(-(2**63), 2**63)


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


def _encode(data: object) -> str:
    return json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _read_integer(text: str) -> int | float:
    return number if len(text) <= 20 and (number := int(text)) in _INT64 else float(text)


def _read_float(text: str) -> int | float:
    number = float(text)
    # both languages write the shortest digits that mean this float, so this is the integer that is stored
    return whole if number.is_integer() and (whole := int(Decimal(text))) in _INT64 else number
