"""Answers of a hostile supervisor. Each is played in place of the answer to one request."""

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import cache
from itertools import chain, count, repeat
from typing import Any, Final

from aiohttp import web

Play = Callable[[web.Request, asyncio.Event], Awaitable[web.StreamResponse]]
"""Answers a request. The event ends what would last for ever."""

MIB: Final = 2**20
FLOOD_BYTES: Final = 96 * MIB
"""Bytes that an endless answer has to offer, far more than any client takes."""
OK: Final = b"HTTP/1.1 200 OK\r\n"
ENDLESS: Final = OK + b"\r\n"
"""Head of a body that lasts until the connection ends."""


def play(pieces: Callable[[], Iterable[bytes]], *, hold: bool = False) -> Play:
    """Return an answer of raw bytes. After them it closes the connection or holds it."""

    async def answer(request: web.Request, over: asyncio.Event) -> web.StreamResponse:
        with suppress(ConnectionError):
            for piece in pieces():
                if request.transport is None or request.transport.is_closing():
                    break
                request.transport.write(piece)
                await request.writer.drain()
            if hold:
                await over.wait()
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    return answer


def say(*pieces: bytes) -> Play:
    """Send some bytes and close the connection."""
    return play(lambda: pieces)


def hold(*pieces: bytes) -> Play:
    """Send some bytes and then nothing."""
    return play(lambda: pieces, hold=True)


def flood(head: bytes, piece: bytes) -> Play:
    """Send a head, and then the same bytes again and again."""
    large = piece * max(1, 65536 // len(piece))
    return play(lambda: chain([head], repeat(large, FLOOD_BYTES // len(large))), hold=True)


def event(kind: str = "stdout", /, **fields: Any) -> bytes:
    """Return a line with an event."""
    values = {"seq": 1, "at": "2026-01-01T00:00:00Z", "type": kind, **({"text": "x"} if kind == "stdout" else {})}
    return json.dumps(values | fields).encode() + b"\n"


def numbered(first: int) -> bytes:
    """Return 500 events from this number on."""
    form = event(seq=1).replace(b'"seq": 1', b'"seq": %d')
    return b"".join(form % number for number in range(first, first + 500))


def line(text: bytes) -> bytes:
    """Return an event, the first, that ends with this text instead of a value."""
    return b'{"seq":1,"at":"2026-01-01T00:00:00Z","type":"result","value":' + text + b"}\n"


@cache
def bomb() -> bytes:
    """Return 256 MiB of zeros, compressed."""
    return gzip.compress(bytes(MIB), 9) * 256


EVERYWHERE: Final[dict[str, Play]] = {
    "no answer": hold(),
    "a closed connection": say(),
    "half a status line": say(b"HTTP/1."),
    "half a head": say(OK + b"content-le"),
    "half a body": say(OK + b'content-length: 100\r\n\r\n{"state'),
    "a body that never comes": hold(OK + b"content-length: 1000000000000\r\n\r\n{"),
    "no HTTP": say(b"\x16\x03\x01\x02\x00\xff\xfe" * 50),
    "a redirect": say(b"HTTP/1.1 307 Temporary Redirect\r\nlocation: /stolen\r\ncontent-length: 0\r\n\r\n"),
    "a switch of protocols": hold(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"),
    "an endless head": flood(OK, b"x-a: b\r\n"),
    "an endless header": flood(OK + b"x-a: ", b"b"),
    "an endless status line": flood(b"HTTP/1.1 200 ", b"O"),
    "endless provisional answers": flood(b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
    "an endless body": flood(ENDLESS, b" "),
    "an endless error": flood(b"HTTP/1.1 500 No\r\n\r\n", b"x"),
    "endless chunks": flood(OK + b"transfer-encoding: chunked\r\n\r\n", b"4\r\n    \r\n"),
    "an endless chunk extension": flood(OK + b"transfer-encoding: chunked\r\n\r\n4;", b"x"),
    "a chunk of negative size": say(OK + b"transfer-encoding: chunked\r\n\r\n-4\r\n    \r\n"),
    "a compressed body": play(lambda: [OK + b"content-encoding: gzip\r\n\r\n", bomb()], hold=True),
    "a deflated body": play(lambda: [OK + b"content-encoding: deflate\r\n\r\n", bomb()], hold=True),
    "a wrong type": say(OK + b'content-length: 2\r\n\r\n"x'),
}
"""Attacks in place of any answer."""

ANSWERS: Final[dict[str, Play]] = {
    name: say(OK + b"content-length: %d\r\n\r\n" % len(body) + body)
    for name, body in {
        "deep JSON": b'{"state":' + b"[" * 4000,
        "a deep object": b'{"a":' * 800,
        "a list": b"[1]",
        "a number with 4000 digits": b"1" * 4000,
        "text that is not UTF-8": b'{"state": "\xff"}',
        "an empty body": b"",
    }.items()
}
"""Attacks in place of an answer of JSON."""

STREAMS: Final[dict[str, Play]] = {
    "a byte and then nothing": hold(ENDLESS + b"{"),
    "an endless line": flood(ENDLESS + b'{"seq": 1, "text": "', b"x"),
    "endless empty lines": flood(ENDLESS, b"\n"),
    "an event again and again": flood(ENDLESS, event()),
    "endless events": play(lambda: chain([ENDLESS], map(numbered, count(1, 500)))),
    "deep JSON": say(ENDLESS + line(b"[" * 200_000 + b"]" * 200_000)),
    "a deep object": say(ENDLESS + line(b'{"a":' * 100_000 + b"1" + b"}" * 100_000)),
    "a number with a million digits": say(ENDLESS + line(b"1" * 1_000_000)),
    "a huge sequence number": say(ENDLESS + event(seq=10**400)),
    "a negative sequence number": say(ENDLESS + event(seq=-1)),
    "a sequence number of text": say(ENDLESS + event(seq="x")),
    "a time before all time": say(ENDLESS + event(at="0001-01-01T00:00:00+14:00")),
    "a time after all time": say(ENDLESS + event(at="9999-12-31T23:59:59-14:00")),
    "a time without a zone": say(ENDLESS + event(at="0001-01-01T00:00:00")),
    "an unknown event": say(ENDLESS + event("shutdown")),
    "text that is no text": say(ENDLESS + event(text={"a": 1})),
    "text that is not UTF-8": say(ENDLESS + event(text="x").replace(b"x", b"\xff")),
    "an end with a wrong phase": say(ENDLESS + event("end", phase="Pending")),
    "an end with an unknown reason": say(ENDLESS + event("end", phase="Failed", reason="Lost")),
    "an end with huge counts": say(ENDLESS + event("end", phase="Succeeded", stdoutBytes=10**30)),
    "a stream that stops before its end": say(ENDLESS + event("status", phase="Running") + event(seq=2)),
}
"""Attacks in place of an event stream."""
