"""Bodies of requests as JSON, and which part of one is none."""

import json
import math
from typing import Any, Final

from mcp_exec_tools.stored_json import find_unstorable
from mcp_exec_tools.text import format_path

MAX_REQUEST_BYTES: Final = 3 * 1024 * 1024
"""Largest body that a gateway can be configured to accept."""
_MAX_DEPTH: Final = 900
"""Less than Python's encoder can write."""
_SCALARS: Final = (str, int, float, bool, type(None))
_INSTEAD: Final = {"set": "a list", "frozenset": "a list", "bytes": "text, or as a file of a workspace"}
_Place = tuple[()] | tuple[Any, str | int]
"""Place of a part of a body: the place of the whole, and the key or the number of the part."""


def encode_body(body: Any) -> bytes:
    """Encode a request's body. Raises ValueError or TypeError if it is no JSON or too large for every gateway."""
    try:
        content = json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(_find_unencodable(body) or str(error)) from None
    if len(content) > MAX_REQUEST_BYTES:
        raise ValueError(f"the request has {len(content)} bytes; at most {MAX_REQUEST_BYTES} are possible")
    return content


def _find_unencodable(body: Any) -> str | None:
    """Return the path of the first part that is no JSON, and what to send instead, or None."""
    waiting: list[tuple[_Place, int, Any]] = [((), 0, body)]
    while waiting:
        place, depth, value = waiting.pop()
        if depth > _MAX_DEPTH:
            return (
                f"{_format(place)[:100]}...: the data contain themselves, or are nested deeper than {_MAX_DEPTH} times"
            )
        if isinstance(value, dict):
            if other := next((key for key in value if not isinstance(key, _SCALARS)), None):
                return f"{_format(place)} has a key of type {_name(other)}, which JSON does not have; send it as text"
            parts: list[tuple[Any, Any]] = list(value.items())
        elif isinstance(value, list | tuple):
            parts = list(enumerate(value))
        elif isinstance(value, float) and not math.isfinite(value):
            return f"{_format(place)}: {find_unstorable(value)}"
        elif isinstance(value, _SCALARS):
            continue
        else:
            instead = _INSTEAD.get(type(value).__name__, "text, a number, a list or a dict")
            return f"{_format(place)} is of type {_name(value)}, which JSON does not have; send it as {instead}"
        waiting += [((place, key if type(key) is int else str(key)), depth + 1, part) for key, part in reversed(parts)]
    return None


def _name(value: object) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _format(place: _Place) -> str:
    steps: list[str | int] = []
    while place:
        place, step = place
        steps.append(step)
    return format_path(steps[::-1])
