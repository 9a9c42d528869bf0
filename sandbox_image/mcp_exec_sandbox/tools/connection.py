"""One HTTP/1.1 connection to the broker: h11 reads and writes, asyncio moves the bytes. It belongs to one event loop.

It carries one call at a time. To close it in the middle of a call is to cancel that call at the broker.
"""

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any

import h11

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""The longest answer that is read, notices included."""
MAX_NOTICES = 100
MAX_PROBLEM_BYTES = 4096
_HEADER_BYTES = 16 * 1024

Answer = dict[str, Any]
Notice = Callable[[Answer], None]


class BrokerRefused(Exception):
    """The broker answered another status than 200."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status = status
        self.text = text


class BrokerLost(Exception):
    """The connection ended, or what came was no answer."""


class Connection(asyncio.Protocol):
    """Sends calls, reads their answers."""

    def __init__(self, *, host: str, token: str) -> None:
        self._headers = [("host", host), ("authorization", f"Bearer {token}"), ("content-type", "application/json")]
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEADER_BYTES)
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[tuple[Answer, int]] | None = None
        self._notice: Notice | None = None
        self._start()

    def _start(self) -> None:
        self._line = bytearray()
        self._status = 0
        self._size = 0
        self._notices = 0
        self._final: Answer | None = None
        self._final_size = 0

    @property
    def is_usable(self) -> bool:
        """Whether another call may be sent."""
        return self._transport is not None and not self._transport.is_closing() and self._answer is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - narrows the type
        self._transport = transport
        if (raw := transport.get_extra_info("socket")) is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, and the call on it with it."""
        self._transport = None
        self._fail(BrokerLost("the connection was closed"))

    async def call(self, body: bytes, notice: Notice) -> tuple[Answer, int]:
        """Send one call and return its final line and that line's size; notices go to `notice` as they come.

        Raises BrokerRefused and BrokerLost. Cancelled, or failed otherwise, the connection is closed.
        """
        if self._transport is None or self._answer is not None:
            raise BrokerLost("the connection was closed")
        self._answer = asyncio.get_running_loop().create_future()
        self._notice = notice
        try:
            self._transport.write(self._request(body))
            return await self._answer
        except BaseException:
            self.close()
            raise
        finally:
            self._answer = self._notice = None

    def close(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Bytes of an answer."""
        try:
            self._http.receive_data(data)
            while (event := self._http.next_event()) is not h11.NEED_DATA and event is not h11.PAUSED:
                if isinstance(event, h11.Response):
                    self._status = event.status_code
                elif isinstance(event, h11.Data):
                    self._take(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    self._complete()
                elif isinstance(event, h11.ConnectionClosed):
                    self.close()
                    return
        except h11.RemoteProtocolError as error:
            self._fail(BrokerLost(f"the broker speaks no HTTP: {error}"))
        except (BrokerLost, BrokerRefused) as error:
            self._fail(error)

    def eof_received(self) -> None:
        """The broker sends no more; the transport closes itself."""

    def _request(self, body: bytes) -> bytes:
        headers = [*self._headers, ("content-length", str(len(body)))]
        head = self._http.send(h11.Request(method="POST", target="/v1/calls", headers=headers)) or b""
        return head + (self._http.send(h11.Data(data=body)) or b"") + (self._http.send(h11.EndOfMessage()) or b"")

    def _take(self, data: bytes | bytearray) -> None:
        self._size += len(data)
        if self._size > (MAX_ANSWER_BYTES if self._status == 200 else MAX_PROBLEM_BYTES):
            raise self._refusal() if self._status != 200 else BrokerLost("the answer is longer than can be read")
        if self._status != 200:
            self._line += data
            return
        first, *rest = data.split(b"\n")
        self._line += first
        for piece in rest:
            if self._line:
                self._take_line(bytes(self._line))
            self._line = bytearray(piece)

    def _take_line(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            raise BrokerLost("the answer is no JSON") from None
        if not isinstance(message, dict):
            raise BrokerLost("the answer is no object")
        if message.get("type") in ("result", "error"):
            self._final, self._final_size = message, len(line)
            return
        self._notices += 1
        if self._notices <= MAX_NOTICES and self._notice is not None:
            self._notice(message)

    def _complete(self) -> None:
        if self._status != 200:
            raise self._refusal()
        if self._line:
            self._take_line(bytes(self._line))
        if self._final is None:
            raise BrokerLost("the answer ended before it said how the call went")
        final = self._final, self._final_size
        self._start()
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        else:
            # Not abort: the answer is whole, and the broker wants no other call here.
            assert self._transport is not None  # noqa: S101 - data came from it
            self._transport.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(final)

    def _refusal(self) -> BrokerRefused:
        return BrokerRefused(self._status, _problem_text(bytes(self._line[:MAX_PROBLEM_BYTES])))

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        self.close()


def _problem_text(body: bytes) -> str:
    """What a refusal says: the detail of a problem in JSON, or its text."""
    text = body.decode("utf-8", "replace").strip()
    try:
        problem = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(problem, dict):
        for name in ("detail", "message", "error", "title"):
            if isinstance(problem.get(name), str):
                return str(problem[name])
    return text
