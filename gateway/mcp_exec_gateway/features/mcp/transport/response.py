"""Response to one request: JSON, or a stream of events if anything precedes the result."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

import anyio
from mcp_types import ProgressToken, RequestId
from starlette.types import Message, Receive, Scope, Send

from mcp_exec_common.process.receipts import find_receipt
from mcp_exec_gateway.core.http.json import json_response, to_json
from mcp_exec_gateway.core.http.limits import MemoryBudget
from mcp_exec_gateway.core.http.problems import HttpProblem, unavailable
from mcp_exec_gateway.core.http.request_body import wait_for_disconnect
from mcp_exec_gateway.core.http.stream import KEEP_ALIVE_SECONDS, SEND_SECONDS, StreamResponse, cancel_all
from mcp_exec_gateway.features.mcp.sdk import (
    ERROR_CODE_HTTP_STATUS,
    CallOptions,
    MessageMetadata,
    NoBackChannelError,
    TransportContext,
    progress_token_from_params,
)
from mcp_exec_gateway.features.mcp.transport.messages import RpcMessage

log = logging.getLogger(__name__)

_MAX_QUEUED: Final = 16
"""Events that wait for a slow client. A sender then waits as well."""


class Delivery(Enum):
    """Whether a client has received a response."""

    DONE = auto()
    """Its system has acknowledged the last byte, or does not say and the connection was open at that byte."""
    IN_DOUBT = auto()
    """Its system has acknowledged the last byte and reset the connection at once, so the client may have read it."""
    MISSED = auto()
    """The connection ended, or time was up, before the last byte was acknowledged."""


@dataclass(kw_only=True)
class Exchange:
    """One request, as the SDK's dispatcher sees it (`mcp.shared.dispatcher.DispatchContext`).

    Messages for the client are events of the response, which becomes a stream with the first of them.
    """

    message: RpcMessage
    accepts_events: bool
    """Whether the client accepts a stream. If not, messages before the response are dropped."""
    accepts_json: bool = True
    """Whether the client accepts a response without a stream."""
    message_metadata: MessageMetadata = None
    events: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(_MAX_QUEUED), init=False)
    """Events to send, encoded."""
    transport: TransportContext = field(
        default_factory=lambda: TransportContext(kind="streamable-http", can_send_request=False), init=False
    )
    cancel_requested: anyio.Event = field(default_factory=anyio.Event, init=False)
    on_end: Callable[[Delivery], Awaitable[None]] | None = field(default=None, init=False)
    """Called after the response, with whether the client has received it."""
    can_send_request: bool = field(default=False, init=False)
    """False: the response to a request of the server may arrive at another replica, so nobody waits for it here."""

    @property
    def request_id(self) -> RequestId | None:
        """Id of the request."""
        return self.message.id

    @property
    def progress_token(self) -> ProgressToken | None:
        """Token of progress notifications, or None if the client wants none."""
        return progress_token_from_params(self.message.params)

    @property
    def wants_progress(self) -> bool:
        """Whether progress notifications reach the client."""
        return self.accepts_events and self.progress_token is not None

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Raise NoBackChannelError: see `can_send_request`."""
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Send a notification."""
        await self.send_message({"method": method, **({"params": dict(params)} if params is not None else {})})

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None, *, event_id: str | None = None
    ) -> None:
        """Send a progress notification, if the client wants them."""
        fields = {"progressToken": self.progress_token, "progress": progress, "total": total, "message": message}
        if self.wants_progress:
            present = {name: value for name, value in fields.items() if value is not None}
            await self.send_message({"method": "notifications/progress", "params": present}, event_id=event_id)

    async def send_message(self, message: Mapping[str, Any], *, event_id: str | None = None) -> None:
        """Send a message, with an id, so that the client can resume the stream from it."""
        if self.accepts_events:
            await self.events.put(encode_event({"jsonrpc": "2.0", **message}, event_id=event_id))

    async def open_stream(self) -> None:
        """Send a comment, so that the client receives the stream's beginning."""
        if self.accepts_events:
            await self.events.put(b": open\n\n")

    async def send_position(self, event_id: str) -> None:
        """Send an event without a message, so that a client whose stream breaks can resume it from `event_id`."""
        if self.accepts_events:
            await self.events.put(b"id: %s\ndata:\n\n" % event_id.encode())


def encode_event(message: Mapping[str, Any], *, event_id: str | None = None) -> bytes:
    """Encode a message as a server-sent event."""
    head = b"id: %s\n" % event_id.encode() if event_id is not None else b""
    return b"%sevent: message\ndata: %s\n\n" % (head, to_json(message))


_TURNS: Final = 5
"""Turns of the event loop to notice the end of a connection."""
_RECEIPT_SECONDS: Final = (0.001, 0.05)
"""First and longest pause between two looks at what the client's system has acknowledged."""

Body = Mapping[str, Any]
"""A JSON-RPC response."""


class ContinueElsewhere(Exception):
    """Ends a response without a result: the client resumes it, perhaps at another replica."""


class McpResponse(StreamResponse):
    """Serves one exchange and sends its response. If the client disconnects, the serving task is cancelled."""

    def __init__(
        self,
        exchange: Exchange,
        serve: Callable[[], Coroutine[Any, Any, Body]],
        *,
        memory: MemoryBudget,
        namespace: str,
        resources: ExitStack,
        write_headers: Callable[[Body], dict[str, str]] = lambda body: {},
        maps_errors: bool = True,
        keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
    ) -> None:
        super().__init__(
            content_type="text/event-stream",
            keep_alive=b": keep-alive\n\n" if exchange.accepts_events else b"",
            keep_alive_seconds=keep_alive_seconds,
        )
        self._exchange = exchange
        self._serve = serve
        self._memory = memory
        self._namespace = namespace
        self._resources = resources
        self._write_headers = write_headers
        self._maps_errors = maps_errors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request and release its resources."""
        with self._resources:
            serving = asyncio.create_task(self._serve())
            leaving = asyncio.create_task(wait_for_disconnect(receive))
            delivery = Delivery.MISSED

            async def send_and_look(message: Message) -> None:
                """Send a message. Between the last byte and the end of the response, see whether it arrives."""
                nonlocal delivery
                if message["type"] != "http.response.body" or message.get("more_body"):
                    await send(message)
                    return
                await _take_turns()
                if leaving.done():
                    return
                await send({**message, "more_body": True})
                # clients close a stream after its last event; an end that they have not read would reset the connection
                delivery = await _wait_for_receipt(scope, leaving)
                await send({"type": "http.response.body", "body": b"", "more_body": False})

            try:
                await self.relay(self._exchange.events.get, send, leaving=leaving, ending=serving)
                if not leaving.done():
                    last = send_and_look if self._exchange.on_end else send
                    await self._send_body(serving.result(), scope, receive, last)
            except ContinueElsewhere:
                await self._end(scope, receive, send)
            except TimeoutError:
                log.info("MCP stream cut: the client is slow")
            finally:
                await cancel_all(serving, leaving)
                if self._exchange.on_end is not None:
                    await self._exchange.on_end(delivery)

    async def _send_body(self, body: Body, scope: Scope, receive: Receive, send: Send) -> None:
        if not self.is_started:
            error = body.get("error") if self._maps_errors else None
            self.status_code = ERROR_CODE_HTTP_STATUS.get(error["code"], 200) if error else 200
            headers = self._write_headers(body)
            if self._exchange.accepts_json:
                response = json_response(
                    body, status=self.status_code, headers=headers, memory=self._memory, namespace=self._namespace
                )
                await response(scope, receive, send)
                return
            self.raw_headers += [(name.encode(), value.encode()) for name, value in headers.items()]
        event = encode_event(body)
        with self._memory.reserving(self._namespace) as reservation, suppress(HttpProblem):
            # without memory the stream ends without a response, and the client may resume or repeat its request
            reservation.require(len(event))
            await self.send_part(event, send, more=False)
            return
        await self._end(scope, receive, send)

    async def _end(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.is_started:
            await self.send_part(b"", send, more=False)
        else:
            await unavailable("this replica of the gateway is shutting down").response()(scope, receive, send)


async def _take_turns() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)


async def _wait_for_receipt(scope: Scope, leaving: "asyncio.Task[None]") -> Delivery:
    """Wait until the client's system has acknowledged what was sent, or the connection ends. Raises TimeoutError."""
    receipt = find_receipt(scope)
    pause, longest = _RECEIPT_SECONDS
    async with asyncio.timeout(SEND_SECONDS):
        while receipt is not None and receipt.is_complete() is False:
            if leaving.done():
                return Delivery.MISSED
            await asyncio.wait({leaving}, timeout=pause)
            pause = min(2 * pause, longest)
    await _take_turns()
    if receipt is not None and leaving.done() and receipt.is_complete() is False:
        return Delivery.IN_DOUBT
    return Delivery.DONE
