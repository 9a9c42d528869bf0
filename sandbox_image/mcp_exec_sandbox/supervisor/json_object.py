"""Strict parsing of JSON objects from clients and from the runner, in linear time and bounded depth."""

import json
import math
from collections.abc import Collection
from typing import Any

from mcp_exec_tools.nesting import is_deeper

MAX_DEPTH = 256
"""Levels of nesting that are read. The runner's results have at most 64, and each later step adds few."""


class InvalidRequest(Exception):
    """The request's body can't be accepted. The text names the field."""


def parse_object(text: bytes) -> dict[str, Any] | None:
    """Parse a strict JSON object: UTF-8, finite numbers, at most `MAX_DEPTH` levels.

    Return None for any other input, and never raise.
    """
    if is_deeper(text, MAX_DEPTH):
        return None
    try:
        value = _DECODER.decode(text.decode())
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def parse_body(body: bytes, fields: Collection[str]) -> dict[str, Any]:
    """Parse a body with no other fields than `fields`.

    Raises:
        InvalidRequest: the body is not a JSON object or has an unknown field.
    """
    values = parse_object(body)
    if values is None:
        raise InvalidRequest(f"the body must be a JSON object in UTF-8 with at most {MAX_DEPTH} levels of nesting")
    for name in values:
        if name not in fields:
            raise InvalidRequest(f"{name[:100]}: unknown field")
    return values


def check_fields(value: object, fields: Collection[str], path: str) -> dict[str, Any]:
    """Return an object, the field `path` of a body. Raises InvalidRequest for anything else, or for other fields."""
    if not isinstance(value, dict):
        raise InvalidRequest(f"{path}: must be an object")
    for name in value:
        if name not in fields:
            raise InvalidRequest(f"{path}.{name[:100]}: unknown field")
    return value


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _parse_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("the number is too large")
    return value


_DECODER = json.JSONDecoder(parse_constant=_reject_constant, parse_float=_parse_float)
