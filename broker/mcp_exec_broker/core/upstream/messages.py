"""JSON-RPC messages as text: halves of surrogate pairs are replaced, and what can't be read is explained. Pure.

Programs in Python and JavaScript write half of a surrogate pair as `\\ud800`. It is no character, so the SDK's parser
refuses the whole message.
"""

import re
from typing import Final

_HIGH: Final = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW: Final = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE: Final = _HIGH + b"(?!" + _LOW + b")|(?<!" + _HIGH + b")" + _LOW
_CANDIDATE: Final = re.compile(_LONE)
"""A half, or a text that looks like one after an escaped backslash. Its search is fast, for it has a literal prefix."""
_HALF: Final = re.compile(rb"(?<!\\)((?:\\\\)*)(?:" + _LONE + b")")
_INVALID: Final = re.compile(r"Invalid JSON: (.{1,200}?) \[type=json_invalid")
HALVES_NOTE: Final = "The answer has halves of surrogate pairs, which are no characters; each is replaced by U+FFFD."


def replace_halves(text: bytes) -> bytes:
    """Return JSON text with U+FFFD for each escaped half of a surrogate pair; the same object if it has none."""
    return _HALF.sub(rb"\1\\ufffd", text) if _CANDIDATE.search(text) else text


def explain_unreadable(error: str) -> str:
    """Return why a message can't be read, from the text of the parser's error. It has no text of the server."""
    if (invalid := _INVALID.search(error)) is not None:
        return f"the answer is no valid JSON: {invalid[1]}"
    return "the answer is no JSON-RPC message whose result is an object"
