"""Depth of JSON, before anything parses it."""

import re
from typing import Final

_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""A string, or its beginning if the text ends in it. Possessive, so that no text is read twice."""
_FOLD: Final = bytes.maketrans(b"{}", b"[]")
_OTHER_BYTES: Final = bytes(set(range(256)) - set(b"[{]}"))


def is_deeper(text: bytes, limit: int) -> bool:
    """Return whether JSON has more than `limit` levels of nesting, without parsing it. The text may be invalid."""
    if text.count(b"[") + text.count(b"{") <= limit:
        return False
    depth = 0
    for bracket in _STRING.sub(b"", text).translate(_FOLD, _OTHER_BYTES):
        depth += 1 if bracket == ord("[") else -1
        if depth > limit:
            return True
    return False
