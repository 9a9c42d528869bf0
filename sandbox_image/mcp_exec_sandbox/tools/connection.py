"""HTTP/1.1 connection to the broker: h11 parses and writes, asyncio transports the bytes. It belongs to one event loop.

It carries one call at a time. Closing it during a call cancels that call at the broker.
"""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import h11

MAX_RESPONSE_BYTES = 64 * 1024 * 1024
"""Maximum size of a response, events included."""
MAX_EVENTS = 100
MAX_PROBLEM_BYTES = 4096
_HEADER_BYTES = 16 * 1024
BrokerMessage = dict[str, Any]
"""A line of a response: an event, or the result or error that ends it."""
EventHandler = Callable[[BrokerMessage], None]
MAX_CALLS = 10
"""Maximum number of concurrent calls in one event loop. Further calls wait."""
CONNECT_SECONDS = 5.0
IDLE_SECONDS = 4.0
"""Maximum idle time of a reused connection. The broker may be about to close a connection that is idle longer."""


@dataclass(frozen=True, kw_only=True)
class BrokerAccess:
    """The job's `tools`: the broker's address, the grant and the allowed patterns."""

    host: str
    port: int
    token: str
    allow: tuple[str, ...]

    @classmethod
    def from_job(cls, fields: Mapping[str, Any]) -> "BrokerAccess":
        """Read the field `tools`, which the supervisor has checked."""
        url = urlsplit(fields["url"])
        return cls(host=url.hostname or "", port=url.port or 80, token=fields["token"], allow=tuple(fields["allow"]))

    def __repr__(self) -> str:
        return f"BrokerAccess(allow={list(self.allow)})"


class BrokerRefused(Exception):
    """The broker returned another status than 200."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status = status
        self.text = text


class BrokerLost(Exception):
    """The connection closed, or the response was invalid."""


class BrokerConnection(asyncio.Protocol):
    """Connection that sends calls and reads their responses."""

    def __init__(self, *, host: str, token: str) -> None:
        self._headers = [("host", host), ("authorization", f"Bearer {token}"), ("content-type", "application/json")]
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEADER_BYTES)
        self._transport: asyncio.Transport | None = None
        self._response: asyncio.Future[tuple[BrokerMessage, int]] | None = None
        self._on_event: EventHandler | None = None
        self._reset()

    def _reset(self) -> None:
        self._line = bytearray()
        self._status = 0
        self._size = 0
        self._events = 0
        self._final: BrokerMessage | None = None
        self._final_size = 0

    @property
    def is_usable(self) -> bool:
        """Whether the connection can send another call."""
        return self._transport is not None and not self._transport.is_closing() and self._response is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport of the open connection."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - narrows the type
        self._transport = transport
        if (raw := transport.get_extra_info("socket")) is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the current call, because the connection has closed."""
        self._transport = None
        self._fail(BrokerLost("the connection was closed"))

    async def call(self, body: bytes, on_event: EventHandler) -> tuple[BrokerMessage, int]:
        """Send one call and return the last line of its response and that line's size. Other lines go to `on_event`.

        A call that fails or is cancelled closes the connection.

        Raises:
            BrokerRefused: the broker returned an error status.
            BrokerLost: the connection closed, or the response was invalid.
        """
        if self._transport is None or self._response is not None:
            raise BrokerLost("the connection was closed")
        self._response = asyncio.get_running_loop().create_future()
        self._on_event = on_event
        try:
            self._transport.write(self._request(body))
            return await self._response
        except BaseException:
            self.close()
            raise
        finally:
            self._response = self._on_event = None

    def close(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Handle bytes of a response."""
        try:
            self._http.receive_data(data)
            while (event := self._http.next_event()) is not h11.NEED_DATA and event is not h11.PAUSED:
                if isinstance(event, h11.Response):
                    self._status = event.status_code
                elif isinstance(event, h11.Data):
                    self._add_data(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    self._complete()
                elif isinstance(event, h11.ConnectionClosed):
                    self.close()
                    return
        except h11.RemoteProtocolError as error:
            self._fail(BrokerLost(f"the broker's response is not HTTP: {error}"))
        except (BrokerLost, BrokerRefused) as error:
            self._fail(error)

    def eof_received(self) -> None:
        """Do nothing: the transport closes itself once the broker sends no more."""

    def _request(self, body: bytes) -> bytes:
        headers = [*self._headers, ("content-length", str(len(body)))]
        head = self._http.send(h11.Request(method="POST", target="/v1/calls", headers=headers)) or b""
        return head + (self._http.send(h11.Data(data=body)) or b"") + (self._http.send(h11.EndOfMessage()) or b"")

    def _add_data(self, data: bytes | bytearray) -> None:
        self._size += len(data)
        if self._size > (MAX_RESPONSE_BYTES if self._status == 200 else MAX_PROBLEM_BYTES):
            raise self._build_refusal() if self._status != 200 else BrokerLost("the response is too long")
        if self._status != 200:
            self._line += data
            return
        first, *rest = data.split(b"\n")
        self._line += first
        for piece in rest:
            if self._line:
                self._handle_line(bytes(self._line))
            self._line = bytearray(piece)

    def _handle_line(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            raise BrokerLost("the response is not JSON") from None
        if not isinstance(message, dict):
            raise BrokerLost("the response is not a JSON object")
        if message.get("type") in ("result", "error"):
            self._final, self._final_size = message, len(line)
            return
        self._events += 1
        if self._events <= MAX_EVENTS and self._on_event is not None:
            self._on_event(message)

    def _complete(self) -> None:
        if self._status != 200:
            raise self._build_refusal()
        if self._line:
            self._handle_line(bytes(self._line))
        if self._final is None:
            raise BrokerLost("the response ended without a result")
        final = self._final, self._final_size
        self._reset()
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        else:
            # Not abort: the response is complete, and the broker accepts no other call on this connection.
            assert self._transport is not None  # noqa: S101 - it has received data
            self._transport.close()
        if self._response is not None and not self._response.done():
            self._response.set_result(final)

    def _build_refusal(self) -> BrokerRefused:
        return BrokerRefused(self._status, _parse_problem(bytes(self._line[:MAX_PROBLEM_BYTES])))

    def _fail(self, error: Exception) -> None:
        if self._response is not None and not self._response.done():
            self._response.set_exception(error)
        self.close()


def _parse_problem(body: bytes) -> str:
    """Return the message of an error response: the detail of a problem in JSON, or its text."""
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


class BrokerUnreachable(Exception):
    """The connection to the broker failed, so nothing was sent."""


class ConnectionPool:
    """Connections of one event loop to the broker."""

    def __init__(self, access: BrokerAccess) -> None:
        self._access = access
        self._slots = asyncio.Semaphore(MAX_CALLS)
        self._idle: list[tuple[BrokerConnection, float]] = []

    async def call(self, body: bytes, on_event: EventHandler) -> tuple[BrokerMessage, int]:
        """Send one call and return the last line of its response and that line's size.

        Raises:
            BrokerUnreachable: the connection failed.
            BrokerRefused: the broker returned an error status.
            BrokerLost: the connection closed, or the response was invalid.
        """
        async with self._slots:
            connection = self._take_idle() or await self._connect()
            response = await connection.call(body, on_event)
            if connection.is_usable:
                self._idle.append((connection, asyncio.get_running_loop().time()))
            return response

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop()[0].close()

    def _take_idle(self) -> BrokerConnection | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection, since = self._idle.pop()
            if connection.is_usable and now - since < IDLE_SECONDS:
                return connection
            connection.close()
        return None

    async def _connect(self) -> BrokerConnection:
        address, port = self._access.host, self._access.port
        host = f"[{address}]" if ":" in address else address
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: BrokerConnection(host=f"{host}:{port}", token=self._access.token), address, port
                )
        except TimeoutError:
            raise BrokerUnreachable(f"no answer within {CONNECT_SECONDS:g} s") from None
        except OSError as error:
            raise BrokerUnreachable(error.strerror or str(error)) from None
        return connection


class LoopConnectionPools:
    """One pool per event loop that calls tools: threads and `asyncio.run` have their own loops."""

    def __init__(self, access: BrokerAccess) -> None:
        self._access = access
        self._pools: dict[asyncio.AbstractEventLoop, ConnectionPool] = {}
        self._lock = threading.Lock()

    def get_pool(self) -> ConnectionPool:
        """Return the pool of the running loop."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = ConnectionPool(self._access)
            with self._lock:
                # A closed loop has closed its connections.
                self._pools = {key: value for key, value in self._pools.items() if not key.is_closed()}
                self._pools[loop] = pool
        return pool

    def close(self) -> None:
        """Close the idle connections of loops that do not run. Those of other threads time out at the broker."""
        for loop, pool in self._pools.items():
            if not loop.is_running() and not loop.is_closed():
                pool.close()
