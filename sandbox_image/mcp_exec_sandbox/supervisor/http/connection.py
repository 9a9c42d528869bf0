"""HTTP/1.1 on one TCP connection: h11 parses and writes, asyncio transports the bytes. Everything is bounded.

A connection has at most one request at a time. A client that disconnects ends its own response and nothing else.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import h11

from mcp_exec_sandbox.supervisor.execution.events import EventBatch
from mcp_exec_sandbox.supervisor.http.routes import (
    HttpRequest,
    HttpResponse,
    PeerLimits,
    SupervisorApi,
    build_error,
    normalize_address,
)
from mcp_exec_sandbox.supervisor.settings import log_failure

BACKLOG = 1024
"""Connections that may wait to be accepted. A burst of them from the code leaves room for operator and gateway."""
MAX_HEADER_BYTES = 16 * 1024
MAX_UNREAD_BYTES = 64 * 1024
"""Bytes that a client may send ahead during a response."""
REQUEST_SECONDS = 10.0
"""Time for a request to arrive after its first byte, and for the first byte of a new connection."""
IDLE_SECONDS = 3660.0
"""Time until the next request on a connection. The operator keeps its connections for an hour."""
WRITE_SECONDS = 60.0
"""Time for a client to read what fills the buffer of a response."""
LINGER_SECONDS = 2.0
"""Time for a client to read the response to a request whose body was not read."""


def bind_port(host: str, port: int) -> socket.socket:
    """Bind a TCP socket that does not listen yet; without a host to all addresses, IPv6 included if there is any.

    It has neither SO_REUSEADDR nor SO_REUSEPORT. With the first, gVisor lets the code bind a single address of the same
    port and gives it the connections to that address. Raises OSError.
    """
    if host:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return _bind(family, (str(address[0]), port))
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return _bind(socket.AF_INET6, ("::", port))
    return _bind(socket.AF_INET, ("", port))


def _bind(family: int, address: tuple[str, int]) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            # the port of IPv4 too, so that nothing else can bind it there
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


class ConnectionRegistry:
    """The open connections."""

    def __init__(self, api: SupervisorApi) -> None:
        self._api = api
        self._limits = PeerLimits()
        self._open: dict[HttpConnection, str] = {}

    def create(self) -> "HttpConnection":
        """Create the protocol of a new connection."""
        return HttpConnection(api=self._api, registry=self)

    def add(self, connection: "HttpConnection", *, peer: tuple[Any, ...]) -> bool:
        """Add a connection from a peer's socket address. Return False if there are too many."""
        name = self._limits.admit(peer)
        if name is None:
            return False
        self._open[connection] = name
        return True

    def discard(self, connection: "HttpConnection") -> None:
        """Remove a connection."""
        name = self._open.pop(connection, None)
        if name is not None:
            self._limits.release(name)

    def close_all(self) -> None:
        """Close every connection after its pending writes."""
        for connection in tuple(self._open):
            connection.close()


class HttpConnection(asyncio.Protocol):
    """Reads requests, calls the API, writes the responses."""

    def __init__(self, *, api: SupervisorApi, registry: ConnectionRegistry) -> None:
        self._api = api
        self._registry = registry
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEADER_BYTES)
        self._transport: asyncio.Transport | None = None
        self._peer = ""
        self._request: HttpRequest | None = None
        self._body = bytearray()
        self._unread = 0
        self._lingering = False
        self._response: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._is_idle = False
        """Whether the deadline is that of the next request's first byte."""
        self._write_deadline: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, or abort it if there are too many."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - narrows the type
        self._transport = transport
        # asyncio sets this only on sockets that were created with the protocol number of TCP.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = transport.get_extra_info("peername")
        # a connection that its peer has closed already has no address any more
        if not peer or not self._registry.add(self, peer=peer):
            transport.abort()
            return
        self._peer = normalize_address(peer[0])
        self._set_deadline(REQUEST_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the response, because the client has disconnected."""
        self._transport = None
        self._registry.discard(self)
        self._clear_deadline()
        self.resume_writing()
        if self._response is not None:
            self._response.cancel()

    def pause_writing(self) -> None:
        """Pause the response, because the client reads slowly."""
        self._writable.clear()
        if self._write_deadline is None:
            self._write_deadline = asyncio.get_running_loop().call_later(WRITE_SECONDS, self._abort)

    def resume_writing(self) -> None:
        """Resume the response."""
        self._writable.set()
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None

    def close(self) -> None:
        """Close after pending writes."""
        if self._transport is not None:
            self._transport.close()

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Handle bytes of a request."""
        if self._lingering:
            return
        if self._is_idle:
            self._clear_deadline()
            self._set_deadline(REQUEST_SECONDS)
        if self._response is not None:
            self._unread += len(data)
            if self._unread > MAX_UNREAD_BYTES:
                self.close()
                return
        try:
            self._http.receive_data(data)
        except h11.RemoteProtocolError:
            self.close()
        else:
            self._read_requests()

    def _read_requests(self) -> None:
        try:
            self._read_events()
        except h11.RemoteProtocolError:
            self.close()
        except Exception as error:
            self._handle_failure(error)

    def _read_events(self) -> None:
        while self._response is None and not self._lingering and self._transport and not self._transport.is_closing():
            event = self._http.next_event()
            if event is h11.NEED_DATA or event is h11.PAUSED:
                self._continue_client()
                if self._http.trailing_data[0] or self._request is not None:
                    self._set_deadline(REQUEST_SECONDS)
                return
            if isinstance(event, h11.Request):
                self._begin_request(event)
            elif isinstance(event, h11.Data):
                self._body += event.data
                request = self._request
                if request is not None and len(self._body) > (limit := self._api.get_max_body_bytes(request)):
                    self._respond(_build_too_large(limit), close=True)
            elif isinstance(event, h11.EndOfMessage):
                self._complete_request()
            elif isinstance(event, h11.ConnectionClosed):
                self.close()

    def _begin_request(self, event: h11.Request) -> None:
        headers = {name: value.decode("latin-1") for name, value in event.headers}
        path, _, query = event.target.decode("latin-1").partition("?")
        self._body.clear()
        self._request = HttpRequest(
            method=event.method.decode("latin-1"),
            path=path,
            query=query,
            authorization=headers.get(b"authorization", ""),
            execution=headers.get(b"mcp-exec-execution", ""),
            protocols=headers.get(b"mcp-exec-protocol", ""),
            peer=self._peer,
        )
        length = headers.get(b"content-length", "0")
        refusal = self._api.refuse(self._request)
        limit = self._api.get_max_body_bytes(self._request)
        if refusal is None and length.isdigit() and int(length[:12]) > limit:
            refusal = _build_too_large(limit)
        if refusal is not None:
            if length == "0" and b"transfer-encoding" not in headers:
                self._http.next_event()
                self._respond(refusal, close=False)
            else:
                # The body of a refused request is not read, so the connection can't be reused.
                self._respond(refusal, close=True)

    def _complete_request(self) -> None:
        request, self._request = self._request, None
        self._clear_deadline()
        if request is None:
            return
        complete = replace(request, body=bytes(self._body))
        self._body.clear()
        response = self._api.handle(complete)
        if isinstance(response, HttpResponse):
            self._respond(response, close=False)
        else:
            self._response = asyncio.create_task(self._respond_later(response))

    async def _respond_later(self, awaitable: Awaitable[HttpResponse]) -> None:
        try:
            response = await awaitable
            self._end_response()
            self._respond(response, close=False)
        except Exception as error:
            self._end_response()
            self._handle_failure(error)
        self._read_requests()

    def _respond(self, response: HttpResponse, *, close: bool) -> None:
        self._request = None
        self._clear_deadline()
        headers = list(response.headers)
        content_type = "application/x-ndjson" if response.stream is not None else "application/json"
        headers.append(("content-type", content_type))
        headers.append(
            ("transfer-encoding", "chunked") if response.stream else ("content-length", str(len(response.body)))
        )
        if close:
            headers.append(("connection", "close"))
        reason = HTTPStatus(response.status).phrase
        head = self._send(h11.Response(status_code=response.status, headers=headers, reason=reason))
        if response.stream is not None:
            self._response = asyncio.create_task(self._write_stream(head, response.stream))
            return
        self._write(head + self._send(h11.Data(data=response.body)) + self._send(h11.EndOfMessage()))
        self._prepare_next_request()

    async def _write_stream(self, head: bytes, stream: AsyncIterator[EventBatch]) -> None:
        try:
            async for batch in stream:
                data = head + (self._send(h11.Data(data=batch.lines)) if batch.lines else b"")
                head = b""
                await self._writable.wait()
                self._write(data + (self._send(h11.EndOfMessage()) if batch.is_last else b""))
        except Exception as error:
            self._handle_failure(error)
            return
        self._end_response()
        self._prepare_next_request()
        self._read_requests()

    def _end_response(self) -> None:
        self._response = None
        self._unread = 0

    def _handle_failure(self, error: Exception) -> None:
        """Log an unexpected error and answer 500, or break off the response that has begun. Close the connection."""
        log_failure("a request could not be handled", error)
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._respond(build_error(500, "the supervisor failed to handle the request; see its log"), close=True)
        else:
            self.close()

    def _prepare_next_request(self) -> None:
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self._set_deadline(IDLE_SECONDS)
            self._is_idle = True
        else:
            self._linger()

    def _linger(self) -> None:
        """Close once the client has read the response. Unread bytes of a closed connection would reset it."""
        self._lingering = True
        if self._transport is not None and self._transport.can_write_eof():
            self._transport.write_eof()
        self._deadline = asyncio.get_running_loop().call_later(LINGER_SECONDS, self.close)

    def _continue_client(self) -> None:
        if self._http.they_are_waiting_for_100_continue:
            self._write(self._send(h11.InformationalResponse(status_code=100, headers=[], reason="Continue")))

    def _send(self, event: h11.Event) -> bytes:
        return self._http.send(event) or b""

    def _write(self, data: bytes) -> None:
        if self._transport is not None and data:
            self._transport.write(data)

    def _set_deadline(self, seconds: float) -> None:
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().call_later(seconds, self._abort)

    def _clear_deadline(self) -> None:
        self._is_idle = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _build_too_large(limit: int) -> HttpResponse:
    return build_error(413, f"the body may have at most {limit} bytes")
