"""One request and what is sent back to its client before the response: notifications, and requests of the server."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from mcp_types import ProgressToken, RequestId

from mcp_exec_gateway.http.json import to_json
from mcp_exec_gateway.mcp.sdk import (
    CallOptions,
    MessageMetadata,
    NoBackChannelError,
    TransportContext,
    progress_token_from_params,
)
from mcp_exec_gateway.mcp.transport.messages import RpcMessage

_MAX_QUEUED: Final = 16
"""Events that wait for a slow client. A sender then waits as well."""


@dataclass(kw_only=True)
class Exchange:
    """One request, as the SDK's dispatcher sees it (`mcp.shared.dispatcher.DispatchContext`).

    Messages for the client are events of the response, which becomes a stream with the first of them.
    """

    message: RpcMessage
    accepts_events: bool
    """Whether the client accepts a stream. If not, messages before the response are dropped."""
    message_metadata: MessageMetadata = None
    events: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(_MAX_QUEUED), init=False)
    """Events to send, encoded."""
    transport: TransportContext = field(
        default_factory=lambda: TransportContext(kind="streamable-http", can_send_request=False), init=False
    )
    cancel_requested: anyio.Event = field(default_factory=anyio.Event, init=False)
    on_end: Callable[[bool], Awaitable[None]] | None = field(default=None, init=False)
    """Called after the response, with whether the client was there to receive it."""
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
        """Send a message, with an id from which the client can resume the stream."""
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
