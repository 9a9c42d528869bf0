"""One session with an MCP server, in whichever era of the protocol it speaks, and what is called in it."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

import aiohttp
import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import RootModel, ValidationError

from mcp_exec_api.tool_server import ToolServerSpec
from mcp_exec_broker.upstream import http_transport as http
from mcp_exec_broker.upstream.credentials import UpstreamCredentials
from mcp_exec_broker.upstream.errors import (
    ConnectionLost,
    ServerUnavailable,
    SessionExpired,
    explain_open_failure,
    interpret_error,
)
from mcp_exec_broker.upstream.oauth import ClientCredentialsTokens
from mcp_exec_broker.upstream.redaction import redact_excerpt
from mcp_exec_broker.upstream.servers import ToolServer
from mcp_exec_broker.upstream.stdio_transport import connect_bridge
from mcp_exec_common.supervisor.tokens import bridge_token

log = logging.getLogger(__name__)

_CLIENT: Final = types.Implementation(name="mcp-exec", version="1")
_RELISTEN_SECONDS: Final = 5.0
_SLACK_BYTES: Final = 64 * 1024
"""What an answer may have around its result."""
_MAX_PAGES: Final = 100
_MAX_TOOLS: Final = 5000
_KEPT_TOKENS: Final = 4


class RawResult(RootModel[dict[str, Any]]):
    """A result as on the wire; that it is one was checked by the SDK before."""


@dataclass(frozen=True, kw_only=True)
class UpstreamRoute:
    """Where a session leads, and with what credentials."""

    server: ToolServer
    spec: ToolServerSpec
    credentials: UpstreamCredentials


@dataclass(frozen=True, kw_only=True)
class ListedTools:
    """What `tools/list` answered, page by page."""

    tools: list[dict[str, Any]]
    ttl_seconds: float | None
    """How long it is good for, where the server says so."""
    is_public: bool
    """Whether the server says that it is the same for everybody."""


@dataclass(kw_only=True, eq=False)
class UpstreamSession:
    """One session. It lives in a task of its own, until it is closed or the connection ends."""

    route: UpstreamRoute
    http: aiohttp.ClientSession
    tokens: ClientCredentialsTokens
    bridge_key: bytes = field(repr=False)
    on_tools_changed: Callable[[], None]
    on_end: Callable[["UpstreamSession"], None]
    ended: bool = False
    was_closed: bool = False
    why: str = ""
    """Why it ended, where that was not wanted."""
    calls: int = 0
    """Calls in flight."""
    idle_since: float = field(default_factory=monotonic)
    _client: Client | None = None
    _task: asyncio.Task[None] | None = None
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _unused: asyncio.Event = field(default_factory=asyncio.Event)
    _tokens: list[str] = field(default_factory=list, repr=False)

    async def open(self, *, timeout_seconds: float) -> None:
        """Connects. Raises Unusable."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        key = "/".join(self.route.server.key)
        self._task = asyncio.create_task(self._live(opened, timeout_seconds), name=f"session {key}")
        try:
            await asyncio.shield(opened)
        except asyncio.CancelledError:  # who asked gave up; others may ask again
            self._task.cancel()
            opened.cancel()
            raise

    @property
    def client(self) -> Client:
        """The SDK's client. Raises Lost where the session has ended."""
        if self._client is None or self.ended:
            raise ConnectionLost(self.why or "the connection has ended")
        return self._client

    @property
    def secrets(self) -> list[str]:
        """Values that no answer may have in it."""
        return [*self.route.credentials.known, *self._tokens]

    @property
    def is_over_bridge(self) -> bool:
        """Whether the server speaks over standard input and output."""
        return self.route.spec.stdio is not None

    @property
    def is_modern(self) -> bool:
        """Whether the protocol of 2026-07-28 or later is spoken."""
        return self.client.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Calls a tool, and returns its result as on the wire. Being cancelled, it cancels the call at the server.

        Raises MCPError where the server answers with an error, SessionError, and ValueError where its answer is none.
        """
        request = types.CallToolRequest(
            params=types.CallToolRequestParams(name=tool, arguments=dict(arguments)),
        )
        with self._in_flight():
            try:
                result = await self._request(request)
            except MCPError as error:
                if error.code != types.HEADER_MISMATCH:
                    raise
                await self.list_tools()  # the server wants arguments as headers, by a schema that has changed
                result = await self._request(request)
        if result.get("resultType", "complete") == "input_required":
            raise ValueError("the server asks for more input, which is declined")
        return result

    async def list_tools(self) -> ListedTools:
        """All tools. Raises MCPError, SessionError, and ValueError where the answer is none."""
        tools: list[dict[str, Any]] = []
        ttl: float | None = None
        public, cursor, seen = True, None, set[str]()
        for _ in range(_MAX_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor) if cursor is not None else None
            with self._in_flight(), _session_errors(self):
                page = await self.client.session.list_tools(params=params)
            tools += [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in page.tools]
            public = public and page.cache_scope == "public"
            if page.ttl_ms > 0:
                ttl = min(page.ttl_ms / 1000, ttl if ttl is not None else float("inf"))
            cursor = page.next_cursor
            if not cursor or cursor in seen or len(tools) >= _MAX_TOOLS:
                break
            seen.add(cursor)
        return ListedTools(tools=tools[:_MAX_TOOLS], ttl_seconds=ttl, is_public=public and self.is_modern)

    async def close(self, *, now: bool = False, patience_seconds: float = 300.0) -> None:
        """Ends it: at once, or when no call is in flight any more."""
        self.was_closed = True
        if not now and self.calls:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_seconds):
                    await self._unused.wait()
        self._stop.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=3)
            self._task.cancel()

    async def _request(self, request: types.CallToolRequest) -> dict[str, Any]:
        with _session_errors(self):
            answer = await self.client.session.send_request(request, RawResult)
        return answer.root

    def _in_flight(self) -> "_InFlight":
        return _InFlight(self)

    # its life

    async def _live(self, opened: "asyncio.Future[None]", timeout_seconds: float) -> None:
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(timeout_seconds):
                    transport = await self._transport(stack)
                    self._client = await stack.enter_async_context(
                        Client(transport, client_info=_CLIENT, cache=None, message_handler=self._heard)
                    )
                if not opened.done():
                    opened.set_result(None)
                if self._tells_changes():
                    listening = asyncio.create_task(self._listen())
                    stack.push_async_callback(_cancelled, listening)
                await self._stop.wait()
        except Exception as error:
            self._fail(error, opened, timeout_seconds)
        finally:
            self.ended = True
            if not opened.done():
                opened.cancel()
            self.on_end(self)

    def _fail(self, error: Exception, opened: "asyncio.Future[None]", timeout_seconds: float) -> None:
        found = explain_open_failure(error, timeout_seconds=timeout_seconds, secrets=self.secrets)
        self.why = self.why or str(found)
        if not opened.done():
            opened.set_exception(found)
            opened.exception()  # who asked may be gone

    async def _transport(self, stack: AsyncExitStack) -> AbstractAsyncContextManager[Any]:
        server, spec = self.route.server, self.route.spec
        most = 2 * spec.limits.result_bytes + _SLACK_BYTES
        if spec.stdio is not None:
            workload = server.workload
            if workload is None or not workload.ready or not workload.address:
                reason = (workload and workload.reason) or "PodNotReady"
                raise ServerUnavailable(reason, (workload and workload.message) or "its pod is not ready")
            token = bridge_token(key=self.bridge_key, namespace=server.namespace, name=server.name)
            return connect_bridge(workload.address, token=token, max_line_bytes=most, on_end=self._connection_ended)
        carrier = http.AiohttpTransport(
            session=self.http,
            tokens=self.tokens,
            credentials=self.route.credentials,
            max_bytes=most,
            on_secret=self._remember,
        )
        client = await stack.enter_async_context(httpx2.AsyncClient(transport=carrier, trust_env=False, timeout=None))
        return streamable_http_client(str(spec.url), http_client=client, max_sse_event_size=most)

    def _connection_ended(self, why: str) -> None:
        self.ended = True
        self.why = self.why or why
        self._stop.set()

    def _remember(self, token: str) -> None:
        if token not in self._tokens:
            self._tokens = [*self._tokens[-_KEPT_TOKENS:], token]

    async def _heard(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.on_tools_changed()
        elif isinstance(message, Exception):
            self.why = redact_excerpt(str(message), self.secrets, most=300)

    def _tells_changes(self) -> bool:
        tools = self.client.server_capabilities.tools
        return self.is_modern and tools is not None and tools.list_changed is True

    async def _listen(self) -> None:
        while not self.ended:
            with suppress(MCPError, SubscriptionLost, TimeoutError, ValidationError, RuntimeError):
                async with self.client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self.on_tools_changed()
            await asyncio.sleep(_RELISTEN_SECONDS)
            self.on_tools_changed()  # nobody knows what was missed meanwhile


class _InFlight:
    """Counts a call while it is in flight."""

    __slots__ = ("_session",)

    def __init__(self, session: UpstreamSession) -> None:
        self._session = session

    def __enter__(self) -> None:
        self._session.calls += 1
        self._session._unused.clear()

    def __exit__(self, *exception: object) -> None:
        self._session.calls -= 1
        self._session.idle_since = monotonic()
        if not self._session.calls:
            self._session._unused.set()


class _session_errors:  # noqa: N801 - it reads as a statement
    """Tells apart what an error of the SDK may mean: an answer of the server, or the connection's end."""

    __slots__ = ("_session",)

    def __init__(self, session: UpstreamSession) -> None:
        self._session = session

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, MCPError):
            found = interpret_error(error, over_bridge=self._session.is_over_bridge, why=self._session.why)
            if isinstance(found, SessionExpired):
                self._session._connection_ended(str(found))
            if found is not None:
                raise found from None
        if isinstance(error, ValidationError):
            raise ValueError("its answer is not what the protocol wants") from None


async def _cancelled(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=2)
