"""HTTP server of the processes: uvicorn with limits on connections, sizes and times, and a graceful shutdown."""

import asyncio
import contextlib
import logging
import math
import os
import socket
from collections.abc import Generator
from functools import partial
from typing import Any, Final

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mcp_exec_common.process.connections import ConnectionLimits, ConnectionTable
from mcp_exec_common.process.receipts import RECEIPT, Receipt
from mcp_exec_common.process.tls import HandshakeProtocol, MountedCertificate

log = logging.getLogger(__name__)

MAX_HEAD_BYTES: Final = 96 * 1024
"""Maximum bytes of request line and headers. A grant with many tools is the longest one. Uvicorn itself has no
limit."""
MAX_HEADERS: Final = 256
"""Maximum number of headers of a request."""
MAX_PIPELINED: Final = 8
"""Requests of one connection that may wait behind the one that is served."""
_LINGER_SECONDS: Final = 10.0
"""Time for a client to read the rest of a response on a connection that the server closes."""
_TICKS: Final = 5
"""Deadlines are checked at every fifth tick of uvicorn: every 0.5 s."""
_HOST: Final = "0.0.0.0"  # noqa: S104 - it runs in a pod
_TIME_OUT: Final = (
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 36\r\n\r\nthe request did not arrive in time.\n"
)


class _HeadRefused(Exception):
    """A head exceeds a limit. The parser stops, and uvicorn responds with 400."""


class BoundedProtocol(HttpToolsProtocol):
    """HTTP/1.1 protocol with bounded heads, and with deadlines for heads, bodies and the reading of responses."""

    def __init__(
        self, *args: Any, table: ConnectionTable, carrier: asyncio.Transport | None = None, **kwargs: Any
    ) -> None:
        """`carrier` is the transport below one of TLS."""
        super().__init__(*args, **kwargs)
        self._table = table
        self._carrier = carrier
        self._limits = table.limits
        self._peer = ""
        self._in_head = True
        self._is_complete = False
        """Whether the last request has arrived, and nothing but line breaks after it."""
        self._head_bytes = 0
        """Bytes received since the head's beginning, in whole chunks."""
        self._header_bytes = 0
        """Bytes of the headers that the parser has found. One chunk may contain a complete head."""
        self._request_deadline = math.inf
        """When the head or the body must be complete, on the loop's clock."""
        self._body_started = math.inf
        """When the body began, later by the time while the application did not read."""
        self._body_bytes = 0
        self._checked_at = self.loop.time()
        self._write_deadline = math.inf
        self._abort_at = math.inf

    # callbacks of the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or abort it if there is no room for it."""
        super().connection_made(transport)
        self._peer = self.client[0] if self.client else ""
        self._receipt = Receipt(transport, self._carrier)
        self._request_deadline = self.loop.time() + self._limits.head_seconds
        if not self._table.admit(self, self._peer):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the connection."""
        self._receipt.note_end(exc)
        self._table.remove(self, self._peer)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handle received data. Close the connection if a head is too large."""
        if self._request_deadline == math.inf:  # the first byte after a request, even if it is only a line break
            self._request_deadline = self.loop.time() + self._limits.head_seconds
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.transport.close()

    def pause_writing(self) -> None:
        """Start the deadline of a client that reads slowly."""
        self._write_deadline = self.loop.time() + self._limits.write_seconds
        super().pause_writing()

    def resume_writing(self) -> None:
        """Clear the deadline of a client that reads slowly."""
        self._write_deadline = math.inf
        super().resume_writing()

    # callbacks of the parser

    def on_message_begin(self) -> None:
        """Handle the start of a request."""
        if len(self.pipeline) >= MAX_PIPELINED:
            raise _HeadRefused
        self._in_head, self._is_complete, self._head_bytes, self._header_bytes = True, False, 0, 0
        super().on_message_begin()
        self.scope["state"][RECEIPT] = self._receipt

    def on_url(self, url: bytes) -> None:
        """Handle a part of the request's URL."""
        super().on_url(url)
        if len(self.url) > MAX_HEAD_BYTES:
            raise _HeadRefused

    def on_header(self, name: bytes, value: bytes) -> None:
        """Handle a header. One that follows the body is refused: uvicorn would keep any number of them."""
        self._header_bytes += len(name) + len(value)
        if not self._in_head or self._header_bytes > MAX_HEAD_BYTES or len(self.headers) >= MAX_HEADERS:
            raise _HeadRefused
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Handle the end of the request's head."""
        self._in_head = False
        self._body_started, self._body_bytes = self.loop.time(), 0
        self._request_deadline = self._body_started + self._limits.body_seconds
        self._table.set_active(self, self._peer)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Handle a part of the request's body. The more has arrived, the longer it may take."""
        self._body_bytes += len(body)
        self._extend_body(self.loop.time())
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Handle the end of the request."""
        self._request_deadline, self._is_complete = math.inf, True
        super().on_message_complete()

    # the end of a request, or of the connection

    def on_response_complete(self) -> None:
        """Handle the end of a response."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self._table.set_waiting(self, self._peer)

    def send_400_response(self, msg: str) -> None:
        """Refuse data that is not an acceptable request. A response in progress is broken off."""
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()
        else:
            super().send_400_response(msg)

    def close_idle(self) -> None:
        """Close the connection, which serves no request, for the benefit of a new one."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def check_deadlines(self, now: float) -> None:
        """Close or abort the connection if a deadline has passed."""
        elapsed, self._checked_at = now - self._checked_at, now
        if self.flow.read_paused and not self._in_head and self._request_deadline < math.inf:
            self._body_started += elapsed  # the client waits for the application
            self._extend_body(now)
        if self.transport.is_closing():
            if self._abort_at == math.inf:
                self._abort_at = now + min(_LINGER_SECONDS, self._limits.write_seconds)
            elif now >= self._abort_at:
                self.transport.abort()
        elif now >= self._write_deadline:
            self.transport.abort()
        elif now >= self._request_deadline:
            self._time_out()

    def _extend_body(self, now: float) -> None:
        limits = self._limits
        earned = self._body_bytes / limits.body_bytes_per_second
        self._request_deadline = limits.body_seconds + min(now, self._body_started + earned)

    def _time_out(self) -> None:
        """End a request that did not arrive, with a response if the client has sent a part of it and has got none."""
        is_served = self.cycle is not None and not self.cycle.response_complete
        if is_served and (self._in_head or self._is_complete):
            # a part of the next request, or line breaks, which some clients send after a body: until the response ends
            self._request_deadline = math.inf
        elif self._in_head and not self._head_bytes:
            self.transport.close()
        elif self._in_head or (is_served and not self.cycle.response_started):
            if is_served:
                self.cycle.disconnected = True  # the application must not respond as well
                self.cycle.message_event.set()
            self.transport.write(_TIME_OUT)
            self.transport.close()
        else:
            self.transport.abort()


class HttpServer(uvicorn.Server):
    """Uvicorn server that leaves signals to the process, reports when it listens and enforces deadlines."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, or log why that is impossible and end the process."""
        await super().startup(sockets or [self._bind()])
        self.listening.set()

    def _bind(self) -> socket.socket:
        """Bind the port. Uvicorn logs a failure as a library, and the processes do not log what libraries say."""
        host, port = self.config.host, self.config.port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            return socket.create_server((host, port), family=family, backlog=self.config.backlog)
        except OSError as error:
            log.error("cannot listen on port %d: %s", port, os.strerror(error.errno or 0))
            raise SystemExit(STARTUP_FAILURE) from None

    async def on_tick(self, counter: int) -> bool:
        """Check the deadlines of all connections."""
        if counter % _TICKS == 0:
            now = asyncio.get_running_loop().time()
            for connection in tuple(self.server_state.connections):
                if isinstance(connection, BoundedProtocol):
                    connection.check_deadlines(now)
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture no signals."""
        yield


def _accept_secured(certificate: MountedCertificate, table: ConnectionTable, **kwargs: Any) -> HandshakeProtocol:
    """Build the protocol of a connection that begins with a handshake. uvicorn gives the other arguments."""

    def build(carrier: asyncio.Transport) -> BoundedProtocol:
        return BoundedProtocol(table=table, carrier=carrier, **kwargs)

    return HandshakeProtocol(certificate=certificate, table=table, build=build)


def build_server(
    app: Any,
    *,
    port: int,
    keep_alive_seconds: int,
    shutdown_seconds: float,
    host: str = _HOST,
    limits: ConnectionLimits | None = None,
    certificate: MountedCertificate | None = None,
) -> HttpServer:
    """Build a server without starting it. With a certificate it serves only TLS.

    The server closes a connection without a request after `keep_alive_seconds`. At shutdown, running requests have
    `shutdown_seconds`, rounded up, to send their responses.
    """
    table = ConnectionTable(limits or ConnectionLimits())
    protocol: Any = partial(BoundedProtocol, table=table)
    if certificate:
        protocol = partial(_accept_secured, certificate, table)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=keep_alive_seconds,
        timeout_graceful_shutdown=math.ceil(shutdown_seconds),
    )
    return HttpServer(config)
