"""Objects of the API server as JSON of bounded depth, whatever somebody nested in a field without a schema.

The API server stores objects of 10,000 levels (encoding/json of Go). Python's parser fails at about a thousand, so one
such object would end the watch that everybody's objects arrive by. Here it arrives like any other, with null in the
place of what is deeper than `MAX_DEPTH`.
"""

import json
import re
from typing import Any, Final

from mcp_exec_tools.nesting import is_deeper

MAX_DEPTH: Final = 300
"""Levels of an object that are read. The parts refuse values of 256 levels, so what was left out is never used."""

_TOKEN: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\]]')
_DECODER: Final = json.JSONDecoder()


def parse(data: bytes) -> Any:
    """Parse JSON. Raises ValueError for what is none."""
    return json.loads(shorten(data))


def shorten(data: bytes) -> bytes:
    """Return JSON for a parser that has no bound of its own."""
    return cut(data.decode())[0].encode() if is_deeper(data, MAX_DEPTH) else data


def parse_part(text: str, position: int) -> tuple[Any, int]:
    """Parse the value that begins at a position. Return it, and where it ends. Raises ValueError for what is none."""
    try:
        value, end = _DECODER.raw_decode(text, position)
    except RecursionError:
        value, end = None, -1
    if end < 0 or _is_deep(text, position, end):
        shallow, end = cut(text, position)
        value = json.loads(shallow)
    return value, end


def cut(text: str, position: int = 0) -> tuple[str, int]:
    """Return the object or list that begins at a position, with null in the place of deeper ones, and where it ends.

    Raises ValueError if it does not end.
    """
    parts: list[str] = []
    depth, kept = 0, position
    for token in _TOKEN.finditer(text, position):
        mark = token[0]
        if mark in "{[":
            depth += 1
            if depth == MAX_DEPTH + 1:
                parts += text[kept : token.start()], "null"
        elif mark in "}]":
            if depth == MAX_DEPTH + 1:
                kept = token.end()
            depth -= 1
            if depth == 0:
                parts.append(text[kept : token.end()])
                return "".join(parts), token.end()
    raise ValueError("an object of the API server does not end")


def _is_deep(text: str, start: int, end: int) -> bool:
    # most objects have few brackets, and are not copied
    few = text.count("{", start, end) + text.count("[", start, end) <= MAX_DEPTH
    return not few and is_deeper(text[start:end].encode(), MAX_DEPTH)
