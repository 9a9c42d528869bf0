"""Streams that say when a caller's tools change: `notifications/tools/list_changed`.

In revision 2026-07-28 a client asks for them by `subscriptions/listen`, in the revisions before by a GET.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from mcp.server.subscriptions import ListenHandler, ServerEvent, ToolsListChanged
from mcp_types import EmptyResult, RequestParams, SubscriptionsListenRequestParams, SubscriptionsListenResult

from mcp_exec_gateway.http.problems import HttpProblem
from mcp_exec_gateway.mcp.direct import DirectTools, check_access
from mcp_exec_gateway.mcp.request import Context, McpRequest, get_request
from mcp_exec_gateway.mcp.transport.response import ContinueElsewhere

POLL_SECONDS: Final = 5.0
"""Seconds between two looks at the tools, which the gateway reads from the broker as often at most."""
_MAX_EVENTS: Final = 16
"""Changes that wait for a slow client, before its stream ends."""
_MAX_SECONDS: Final = 3600.0
"""Seconds after which a stream ends and its client opens another one, for which its rights are checked again."""


class ToolChanges:
    """Reports changes of the tools that a toolset offers. Each stream holds a slot of its caller."""

    def __init__(self, toolset: DirectTools) -> None:
        self._toolset = toolset

    async def listen(self, context: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """Serve `subscriptions/listen`. Raises HttpProblem, a 429, if the caller has too many streams."""
        request = get_request(context)
        with _hold_slot(request):
            digest = await self._compute_digest(request)
            bus = _OneStream(lambda: self._watch(request, digest))
            bus.handler = ListenHandler(bus, max_subscriptions=1, max_buffered_events=_MAX_EVENTS)
            return await bus.handler(context, params)

    async def stream(self, context: Context, params: RequestParams) -> EmptyResult:
        """Serve the GET of the revisions before. Raises HttpProblem, a 429, if the caller has too many streams."""
        request = get_request(context)
        with _hold_slot(request):
            digest = await self._compute_digest(request)
            await request.exchange.open_stream()
            async for _ in self._watch(request, digest):
                await request.exchange.notify("notifications/tools/list_changed", None)
        raise ContinueElsewhere

    async def _watch(self, request: McpRequest, digest: str) -> AsyncIterator[None]:
        """Yield after each change, until the gateway stops or the stream is old."""
        closing = request.sender.dependencies.shutdown.closing
        end = asyncio.get_running_loop().time() + _MAX_SECONDS
        while asyncio.get_running_loop().time() < end:
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await closing.wait()
                return
            last, digest = digest, await self._compute_digest(request) or digest
            if digest != last:
                yield

    async def _compute_digest(self, request: McpRequest) -> str:
        """Return a digest of the caller's tools; empty if they are unknown now."""
        try:
            return (await self._toolset.select(request, check_access(request))).digest
        except HttpProblem:
            return ""


class _OneStream:
    """Source of the events of one stream, in the form that the SDK's handler reads."""

    handler: ListenHandler

    def __init__(self, watch: Callable[[], AsyncIterator[None]]) -> None:
        self._watch = watch

    async def publish(self, event: ServerEvent) -> None:
        """Do nothing: nobody publishes."""

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], Any]:
        """Send changes to the listener, and return what stops that."""
        return asyncio.create_task(self._send(listener)).cancel

    async def _send(self, listener: Callable[[ServerEvent], None]) -> None:
        async for _ in self._watch():
            listener(ToolsListChanged())
        self.handler.close()


@contextmanager
def _hold_slot(request: McpRequest) -> Iterator[None]:
    sender = request.sender
    slots = sender.dependencies.listener_slots
    with slots.hold(sender.caller.name, limit=sender.caller.limits.max_streams):
        yield
