"""Answers of a hostile supervisor with a marker in every place that an error text could quote."""

from typing import Final

from tests.support.attacks import OK, Play, say

MARKER: Final = "MARKER-of-the-code"
_M: Final = MARKER.encode()


def _body(status: bytes, body: bytes, *headers: bytes) -> Play:
    head = b"\r\n".join([b"HTTP/1.1 " + status, b"content-length: %d" % len(body), *headers])
    return say(head + b"\r\n\r\n" + body)


def _line(text: bytes) -> Play:
    return say(OK + b"content-type: application/x-ndjson\r\n\r\n" + text + b"\n")


QUOTES: Final[dict[str, Play]] = {
    "a status line": say(_M + b" 200 OK\r\n\r\n"),
    "a reason": _body(b"500 " + _M, b""),
    "a header": say(OK + b"x-" + _M + b"\0: " + _M + b"\r\n\r\n"),
    "a length": say(OK + b"content-length: " + _M + b"\r\n\r\n"),
    "an encoding": _body(b"200 OK", b"{}", b"content-encoding: " + _M),
    "a chunk": say(OK + b"transfer-encoding: chunked\r\n\r\n" + _M + b"\r\n"),
    "an error": _body(b"500 Error", b'{"error": "' + _M + b'"}'),
    "a conflict": _body(b"409 Conflict", b'{"error": "' + _M + b'", "id": []}'),
    "no JSON": _body(b"200 OK", _M),
    "a list": _body(b"200 OK", b'["' + _M + b'"]'),
    "a state": _body(b"200 OK", b'{"state": "' + _M + b'"}'),
    "a line that is no event": _line(_M),
    "an unknown type": _line(b'{"seq": 1, "type": "' + _M + b'"}'),
    "an unknown phase": _line(b'{"seq": 1, "type": "end", "at": "x", "phase": "' + _M + b'"}'),
    "an unknown field": _line(b'{"seq": 1, "type": "stdout", "text": 5, "' + _M + b'": 1}'),
}
