"""HTTP/1.1 on one TCP connection: h11 reads and writes, asyncio moves the bytes. Everything is bounded.

A connection has at most one request at a time. A client that goes away ends its own answer and nothing else.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable
from http import HTTPStatus

import h11

from mcp_exec_sandbox.supervisor.event_log import Batch
from mcp_exec_sandbox.supervisor.routes import Api, Request, Response, too_large

MAX_HEADER_BYTES = 16 * 1024
MAX_UNREAD_BYTES = 64 * 1024
"""What a client may send ahead while it is being answered."""

REQUEST_SECONDS = 10.0
"""Time for a request to arrive once its first byte has."""

LINGER_SECONDS = 2.0
"""Time for a client to read the answer to a request that wasn't read to its end."""

MAX_CONNECTIONS = 64
MAX_OWN_CONNECTIONS = 16
"""Of these, connections that come from the pod itself: the code must not be able to use all of them up."""


class Connections:
    """The open connections."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._open: dict[Connection, bool] = {}

    def make(self) -> "Connection":
        """A protocol for a new connection."""
        return Connection(api=self._api, connections=self)

    def admit(self, connection: "Connection", *, own: bool) -> bool:
        """Count a connection in, or tell that there are too many."""
        if len(self._open) >= MAX_CONNECTIONS or (own and sum(self._open.values()) >= MAX_OWN_CONNECTIONS):
            return False
        self._open[connection] = own
        return True

    def discard(self, connection: "Connection") -> None:
        """Count a connection out."""
        self._open.pop(connection, None)

    def close_all(self) -> None:
        """Close every connection after what was written to it."""
        for connection in tuple(self._open):
            connection.close()


class Connection(asyncio.Protocol):
    """Reads requests, asks the API, writes the answers."""

    def __init__(self, *, api: Api, connections: Connections) -> None:
        self._api = api
        self._connections = connections
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEADER_BYTES)
        self._transport: asyncio.Transport | None = None
        self._request: Request | None = None
        self._body = bytearray()
        self._unread = 0
        self._lingering = False
        self._answer: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, unless there are too many."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - narrows the type
        self._transport = transport
        # asyncio does this only for sockets that were made with the protocol number of TCP.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer, local = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if not self._connections.admit(self, own=bool(peer and local and peer[0] == local[0])):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: end its answer."""
        self._transport = None
        self._connections.discard(self)
        self._clear_deadline()
        self._writable.set()
        if self._answer is not None:
            self._answer.cancel()

    def pause_writing(self) -> None:
        """The client reads slowly."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._writable.set()

    def close(self) -> None:
        """Close after what was written."""
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Bytes of a request."""
        if self._lingering:
            return
        if self._answer is not None:
            self._unread += len(data)
            if self._unread > MAX_UNREAD_BYTES:
                self.close()
                return
        try:
            self._http.receive_data(data)
            self._read_requests()
        except h11.RemoteProtocolError:
            self.close()

    def _read_requests(self) -> None:
        while self._answer is None and not self._lingering and self._transport and not self._transport.is_closing():
            event = self._http.next_event()
            if event is h11.NEED_DATA or event is h11.PAUSED:
                self._continue_client()
                if self._http.trailing_data[0] or self._request is not None:
                    self._set_deadline()
                return
            if isinstance(event, h11.Request):
                self._begin(event)
            elif isinstance(event, h11.Data):
                self._body += event.data
                if self._request is not None and len(self._body) > (limit := self._api.max_body_bytes(self._request)):
                    self._respond(too_large(limit), close=True)
            elif isinstance(event, h11.EndOfMessage):
                self._complete()
            elif isinstance(event, h11.ConnectionClosed):
                self.close()

    def _begin(self, event: h11.Request) -> None:
        headers = {name: value.decode("latin-1") for name, value in event.headers}
        path, _, query = event.target.decode("latin-1").partition("?")
        self._body.clear()
        self._request = Request(
            method=event.method.decode("latin-1"),
            path=path,
            query=query,
            authorization=headers.get(b"authorization", ""),
        )
        length = headers.get(b"content-length", "0")
        refusal = self._api.refuse(self._request)
        limit = self._api.max_body_bytes(self._request)
        if refusal is None and length.isdigit() and int(length[:12]) > limit:
            refusal = too_large(limit)
        if refusal is not None:
            if length == "0" and b"transfer-encoding" not in headers:
                self._http.next_event()
                self._respond(refusal, close=False)
            else:
                # A body that nobody wants isn't read: the connection ends instead.
                self._respond(refusal, close=True)

    def _complete(self) -> None:
        request, self._request = self._request, None
        self._clear_deadline()
        if request is None:
            return
        whole = Request(
            method=request.method,
            path=request.path,
            query=request.query,
            authorization=request.authorization,
            body=bytes(self._body),
        )
        self._body.clear()
        answer = self._api.handle(whole)
        if isinstance(answer, Response):
            self._respond(answer, close=False)
        else:
            self._answer = asyncio.create_task(self._respond_later(answer))

    async def _respond_later(self, answer: Awaitable[Response]) -> None:
        response = await answer
        self._answer = None
        self._unread = 0
        self._respond(response, close=False)
        self._go_on()

    def _respond(self, response: Response, *, close: bool) -> None:
        self._request = None
        self._clear_deadline()
        headers = list(response.headers)
        kind = "application/x-ndjson" if response.stream is not None else "application/json"
        headers.append(("content-type", kind))
        headers.append(
            ("transfer-encoding", "chunked") if response.stream else ("content-length", str(len(response.body)))
        )
        if close:
            headers.append(("connection", "close"))
        reason = HTTPStatus(response.status).phrase
        head = self._send(h11.Response(status_code=response.status, headers=headers, reason=reason))
        if response.stream is not None:
            self._answer = asyncio.create_task(self._write_stream(head, response.stream))
            return
        self._write(head + self._send(h11.Data(data=response.body)) + self._send(h11.EndOfMessage()))
        self._next_request()

    async def _write_stream(self, head: bytes, stream: AsyncIterator[Batch]) -> None:
        async for batch in stream:
            data = head + (self._send(h11.Data(data=batch.lines)) if batch.lines else b"")
            head = b""
            await self._writable.wait()
            self._write(data + (self._send(h11.EndOfMessage()) if batch.is_last else b""))
        self._answer = None
        self._unread = 0
        self._next_request()
        self._go_on()

    def _go_on(self) -> None:
        """Read what the client has sent during its answer."""
        try:
            self._read_requests()
        except h11.RemoteProtocolError:
            self.close()

    def _next_request(self) -> None:
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        else:
            self._linger()

    def _linger(self) -> None:
        """Close once the client has read the answer; bytes of its that stood unread would reset the connection."""
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

    def _set_deadline(self) -> None:
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().call_later(REQUEST_SECONDS, self.close)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
