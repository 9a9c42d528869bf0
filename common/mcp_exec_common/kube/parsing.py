"""Objects of the API server as JSON of bounded depth, whatever somebody nested in a field without a schema.

The API server stores objects of 10,000 levels (encoding/json of Go). Python's parser fails at about a thousand, so one
such object would end the watch that everybody's objects arrive by. Here it arrives like any other, with null in the
place of what is deeper than `MAX_DEPTH`.
"""

import json
import re
from array import array
from itertools import accumulate
from typing import Any, Final

MAX_DEPTH: Final = 300
"""Levels of an object that are read. The parts refuse values of 256 levels, so what was left out is never used."""

_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"')
_TOKEN: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\]]')
_OPEN: Final = b"{["
_CLOSE: Final = b"}]"
_STEPS: Final = bytes.maketrans(_OPEN + _CLOSE, b"\1\1\xff\xff")
"""A bracket as a signed byte: 1 or -1."""
_OTHERS: Final = bytes(set(range(256)) - set(_OPEN + _CLOSE))
_DECODER: Final = json.JSONDecoder()


def parse(text: str) -> Any:
    """Parse JSON. Raises ValueError for what is none."""
    return json.loads(text if _is_shallow(text, 0, len(text)) else cut(text)[0])


def shorten(line: bytes) -> bytes:
    """Return JSON for a parser that has no bound of its own."""
    if line.count(b"{") + line.count(b"[") <= MAX_DEPTH:
        return line
    text = line.decode()
    return line if _is_shallow(text, 0, len(text)) else cut(text)[0].encode()


def parse_part(text: str, position: int) -> tuple[Any, int]:
    """Parse the value that begins at a position. Return it, and where it ends. Raises ValueError for what is none."""
    try:
        value, end = _DECODER.raw_decode(text, position)
    except RecursionError:
        value, end = None, -1
    if end < 0 or not _is_shallow(text, position, end):
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


def _is_shallow(text: str, start: int, end: int) -> bool:
    """Return whether valid JSON has at most `MAX_DEPTH` levels, mostly by the number of its brackets."""
    if text.count("{", start, end) + text.count("[", start, end) <= MAX_DEPTH:
        return True
    steps = _STRING.sub(b"", text[start:end].encode()).translate(_STEPS, _OTHERS)
    return max(accumulate(array("b", steps)), default=0) <= MAX_DEPTH
