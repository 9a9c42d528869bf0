"""JSON-RPC messages as text: halves of surrogate pairs, ids of answers, and what can't be read. Pure.

Programs in Python and JavaScript write half of a surrogate pair as `\\ud800`. It is no character, so the SDK's parser
refuses the whole message.
"""

import json
import re
from typing import Any, Final

from pydantic_core import from_json

_HIGH: Final = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW: Final = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE: Final = _HIGH + b"(?!" + _LOW + b")|(?<!" + _HIGH + b")" + _LOW
_CANDIDATE: Final = re.compile(_LONE)
"""A half, or a text that looks like one after an escaped backslash. Its search is fast, for it has a literal prefix."""
_HALF: Final = re.compile(rb"(?<!\\)((?:\\\\)*)(?:" + _LONE + b")")
_GAP: Final = rb"\s{0,9}"
_ID: Final = _GAP + rb'"id"' + _GAP + b":" + _GAP + rb"(\d{1,15})" + _GAP
_VERSION: Final = rb'"jsonrpc"' + _GAP + b":" + _GAP + rb'"2.0"' + _GAP + b","
_FIRST_ID: Final = re.compile(
    _GAP + rb"\{" + _GAP + b"(?:" + _VERSION + b")?" + _ID + b"," + _GAP + rb'(?:"jsonrpc"|"result"|"error")'
)
_LAST_ID: Final = re.compile(b"," + _ID + rb'(?:,\s?"jsonrpc"\s?:\s?"2.0"\s?)?\}' + _GAP + rb"\Z")
_ID_BYTES: Final = 100
_REQUEST_ID: Final = re.compile(_GAP + rb"\{" + _GAP + _VERSION + _ID)
_INVALID: Final = re.compile(r"Invalid JSON: (.{1,200}?) \[type=json_invalid")
HALVES_NOTE: Final = "The answer has halves of surrogate pairs, which are no characters; each is replaced by U+FFFD."

OTHER_ANSWER: Final = "the answer has another id than its request"


class NotTheAnswer(Exception):
    """A message that is no answer to the request whose answer it should be."""


def replace_halves(text: bytes) -> bytes:
    """Return JSON text with U+FFFD for each escaped half of a surrogate pair; the same object if it has none."""
    return _HALF.sub(rb"\1\\ufffd", text) if _CANDIDATE.search(text) else text


def explain_unreadable(error: str) -> str:
    """Return why a message can't be read, from the text of the parser's error. It has no text of the server."""
    if error.endswith(OTHER_ANSWER):
        return OTHER_ANSWER
    if (invalid := _INVALID.search(error)) is not None:
        return f"the answer is no valid JSON: {invalid[1]}"
    return "the answer is no JSON-RPC message whose result is an object"


def find_id(line: bytes) -> int:
    """Return the id in an answer that is not parsed, or -1. A false one ends another request of the same server."""
    found = _FIRST_ID.match(line) or _LAST_ID.search(line[-_ID_BYTES:])
    return int(found.group(1)) if found is not None else -1


def find_request_id(text: bytes) -> int | None:
    """Return the id of a request as the SDK writes it, or None if it is a notification."""
    found = _REQUEST_ID.match(text)
    return int(found.group(1)) if found is not None else None


def read_answer(text: bytes, request_id: int) -> bytes:
    """Return the text of the only answer to a request. An error whose id is null gets the id.

    Text that is no JSON object is left to the parser. Raises NotTheAnswer.
    """
    if find_id(text) == request_id:
        return text
    try:
        message: Any = from_json(text)
    except ValueError:
        return text
    if not isinstance(message, dict) or ("method" not in message and str(message.get("id")) == str(request_id)):
        return text
    if message.get("id", "") is None and "error" in message:
        return json.dumps({**message, "id": request_id}).encode()
    raise NotTheAnswer(OTHER_ANSWER)
