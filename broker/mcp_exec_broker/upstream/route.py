"""The route to an MCP server: the ToolServer, its credentials, and the transport that leads there."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import httpx2
from mcp.client.streamable_http import streamable_http_client

from mcp_exec_api.reasons.server import ServerReason
from mcp_exec_api.tool_server import ToolServerSpec
from mcp_exec_broker.memory.in_flight import BytesInFlight
from mcp_exec_broker.upstream.credentials import UpstreamCredentials
from mcp_exec_broker.upstream.errors import ServerUnavailable
from mcp_exec_broker.upstream.http_transport import AiohttpTransport
from mcp_exec_broker.upstream.oauth import ClientCredentialsTokens
from mcp_exec_broker.upstream.servers import ToolServer
from mcp_exec_broker.upstream.stdio_transport import connect_bridge
from mcp_exec_common.supervisor.tokens import bridge_token

_SLACK_BYTES: Final = 64 * 1024
"""Bytes of an answer in addition to its result."""


@dataclass(frozen=True, kw_only=True)
class UpstreamRoute:
    """Destination and credentials of a session."""

    server: ToolServer
    spec: ToolServerSpec
    credentials: UpstreamCredentials


@dataclass(frozen=True, kw_only=True)
class TransportFactory:
    """Opens transports, over HTTP or over the stdio bridge."""

    http: aiohttp.ClientSession
    oauth_tokens: ClientCredentialsTokens
    flight: BytesInFlight
    """Memory of what servers send."""
    bridge_key: bytes = field(repr=False)

    async def open_transport(
        self,
        route: UpstreamRoute,
        stack: AsyncExitStack,
        *,
        on_secret: Callable[[str], None],
        on_end: Callable[[ServerUnavailable], None],
    ) -> AbstractAsyncContextManager[Any]:
        """Return a transport for the SDK's client.

        `on_secret` receives each access token before its use; `on_end` the cause if a bridged server ends the
        connection. Raises ServerUnavailable if the pod of a stdio server is not ready.
        """
        max_bytes = 2 * route.spec.limits.result_bytes + _SLACK_BYTES
        if route.spec.stdio is not None:
            return self._connect_bridge(route.server, max_bytes=max_bytes, on_end=on_end)
        transport = AiohttpTransport(
            session=self.http,
            oauth_tokens=self.oauth_tokens,
            credentials=route.credentials,
            max_bytes=max_bytes,
            on_secret=on_secret,
        )
        client = await stack.enter_async_context(httpx2.AsyncClient(transport=transport, trust_env=False, timeout=None))
        return streamable_http_client(str(route.spec.url), http_client=client, max_sse_event_size=max_bytes)

    def _connect_bridge(
        self, server: ToolServer, *, max_bytes: int, on_end: Callable[[ServerUnavailable], None]
    ) -> AbstractAsyncContextManager[Any]:
        workload = server.workload
        if workload is None or not workload.ready or not workload.address:
            reason = (workload and workload.reason) or ServerReason.POD_NOT_READY
            raise ServerUnavailable(reason, (workload and workload.message) or "its pod is not ready")
        token = bridge_token(key=self.bridge_key, namespace=server.namespace, name=server.name)
        return connect_bridge(workload.address, token=token, max_line_bytes=max_bytes, on_end=on_end)
