"""A session with an MCP server, in any version of the protocol."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

import mcp_types as types
from mcp import Client, MCPError
from mcp.client.subscriptions import SubscriptionLost
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import RootModel, ValidationError

from mcp_exec_api.reasons.server import ServerReason
from mcp_exec_broker.core.memory import AnswerReceiver, receiving, receiving_for
from mcp_exec_broker.core.upstream.credentials import MIN_SECRET_LENGTH
from mcp_exec_broker.core.upstream.errors import (
    ConnectionLost,
    ServerUnavailable,
    SessionError,
    SessionExpired,
    explain_open_failure,
    interpret_error,
    redact_excerpt,
    redact_output,
)
from mcp_exec_broker.core.upstream.messages import HALVES_NOTE
from mcp_exec_broker.core.upstream.result_repair import CHECKED
from mcp_exec_broker.core.upstream.servers import TransportFactory, UpstreamRoute
from mcp_exec_broker.core.upstream.tool_listing import OmittedEntry, ToolCollector, accept_malformed_answers
from mcp_exec_tools.paging import Pages

log = logging.getLogger(__name__)

_CLIENT: Final = types.Implementation(name="mcp-exec", version="1")
_RESUBSCRIBE_SECONDS: Final = 5.0
_MAX_OUTPUT: Final = 500
"""Characters of how a server ended, with its last line on standard error."""
_MAX_ACCESS_TOKENS: Final = 4
"""Earlier access tokens that answers must not contain, in addition to the current one."""


class RawResult(RootModel[dict[str, Any]]):
    """A result as on the wire, whose form the SDK has checked."""


@dataclass(frozen=True, kw_only=True)
class ListedTools:
    """All pages of `tools/list`."""

    tools: list[dict[str, Any]]
    ttl_seconds: float | None
    """Lifetime of the list, or None if the server does not state one."""
    is_public: bool
    """Whether the server states that the list is the same for everybody."""
    size: int
    """Bytes of the tools as JSON."""
    omitted: list[OmittedEntry]
    """The first tools that were left out, because they exceed a bound."""
    omitted_count: int


@dataclass(kw_only=True, eq=False)
class UpstreamSession:
    """A session, which lives in its own task until it is closed or its connection ends."""

    route: UpstreamRoute
    transports: TransportFactory
    on_tools_changed: Callable[[], None]
    """Called when the server reports a change of its tools."""
    on_end: Callable[["UpstreamSession"], None]
    """Called once when the session has ended."""
    has_ended: bool = False
    was_closed: bool = False
    """Whether the broker closed it."""
    end_cause: str = ""
    """Why it ended, if the broker did not close it."""
    failure: ServerUnavailable | None = None
    """The same with its reason, if the transport reported it."""
    active_requests: int = 0
    idle_since: float = field(default_factory=monotonic)
    _client: Client | None = None
    _task: asyncio.Task[None] | None = None
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _idle: asyncio.Event = field(default_factory=asyncio.Event)
    _access_tokens: list[str] = field(default_factory=list, repr=False)

    async def open(self, *, timeout_seconds: float) -> None:
        """Connect to the server. Raises ServerUnavailable."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        key = "/".join(self.route.server.key)
        self._task = asyncio.create_task(self._run(opened, timeout_seconds), name=f"session {key}")
        try:
            await asyncio.shield(opened)
        except asyncio.CancelledError:
            self._task.cancel()
            opened.cancel()
            raise

    @property
    def client(self) -> Client:
        """The SDK's client. Raises ConnectionLost if the session has ended."""
        if self._client is None or self.has_ended:
            raise ConnectionLost(self.end_cause or "the connection has ended")
        return self._client

    @property
    def secrets(self) -> list[str]:
        """Credentials that no answer may contain."""
        return [*self.route.credentials.secrets, *self._access_tokens]

    @property
    def is_over_bridge(self) -> bool:
        """Whether the server uses standard input and output."""
        return self.route.spec.stdio is not None

    @property
    def is_modern(self) -> bool:
        """Whether the session uses the protocol of 2026-07-28 or later."""
        return self.client.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def call_tool(self, tool: str, arguments: Mapping[str, Any], *, receiver: AnswerReceiver) -> dict[str, Any]:
        """Call a tool and return its result as on the wire. Cancelling it also cancels the call at the server.

        Raises MCPError if the server answers with an error, SessionError, ValueError if its answer is invalid, and
        ToolCallError if that takes too much memory.
        """
        try:
            with receiving(receiver):
                result = await self._call_tool(tool, arguments)
        except (MCPError, SessionError, ValueError):
            if receiver.refused is not None:
                raise receiver.refused from None
            raise
        checked, notes = result[CHECKED]
        receiver.notes = [*notes, HALVES_NOTE] if receiver.has_halves else notes
        repaired: dict[str, Any] = checked
        return repaired

    async def _call_tool(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        request = types.CallToolRequest(
            params=types.CallToolRequestParams(name=tool, arguments=dict(arguments)),
        )
        with self._count_request():
            try:
                accept_malformed_answers(self.client.session, is_modern=self.is_modern)
                result = await self._send_request(request)
            except MCPError as error:
                if error.code != types.HEADER_MISMATCH:
                    raise
                await self.list_tools()  # the server expects arguments as headers, by a schema that has changed
                result = await self._send_request(request)
        if result.get("resultType", "complete") == "input_required":
            raise ValueError("the server asks for more input, which is declined")
        return result

    async def list_tools(self) -> ListedTools:
        """Return the tools within all bounds. Raises MCPError, SessionError, and ValueError if an answer is invalid."""
        async with receiving_for(self.transports.flight, self.route.server.key, keeps=True) as receiver:
            try:
                return await self._list_tools()
            except (MCPError, SessionError, ValueError):
                if receiver.refused is not None:
                    raise ValueError(receiver.refused.message) from None
                raise

    async def _list_tools(self) -> ListedTools:
        collector, pages = ToolCollector(), Pages()
        ttl: float | None = None
        is_public, goes_on = True, True
        while goes_on:
            params = types.PaginatedRequestParams(cursor=pages.cursor) if pages.cursor is not None else None
            try:
                with self._count_request(), self._interpret_errors():
                    accept_malformed_answers(self.client.session, is_modern=self.is_modern)
                    page = await self.client.session.list_tools(params=params)
            except MCPError:
                if pages.cursor == "":
                    break  # it was the end of the listing
                raise
            tools = [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in page.tools]
            brings_news = await asyncio.to_thread(collector.add_all, tools)
            is_public = is_public and page.cache_scope == "public"
            if page.ttl_ms > 0:
                ttl = min(page.ttl_ms / 1000, ttl if ttl is not None else float("inf"))
            goes_on = pages.advance(page.next_cursor, brings_news=brings_news)
            if goes_on and collector.is_full:
                pages.problem, goes_on = "has too many tools", False
        if pages.problem:
            collector.omit("(further pages)", f"the server {pages.problem}")
        self._retain(collector.tools)
        return ListedTools(
            tools=collector.tools,
            ttl_seconds=ttl,
            is_public=is_public and self.is_modern,
            size=collector.size,
            omitted=collector.omitted,
            omitted_count=collector.omitted_count,
        )

    def _retain(self, tools: list[dict[str, Any]]) -> None:
        """Drop what the SDK's session keeps of other tools: it adds those of every page, and removes none."""
        kept = types.ListToolsResult(tools=[types.Tool.model_validate(tool, by_name=False) for tool in tools])
        self.client.session._absorb_tool_listing(kept, complete=True)  # noqa: SLF001 - there is no public way

    async def close(self, *, now: bool = False, patience_seconds: float = 300.0) -> None:
        """End the session: at once, or after its active requests."""
        self.was_closed = True
        if not now and self.active_requests:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_seconds):
                    await self._idle.wait()
        self._stop.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=3)
            self._task.cancel()

    async def _send_request(self, request: types.CallToolRequest) -> dict[str, Any]:
        with self._interpret_errors():
            result = await self.client.session.send_request(request, RawResult)
        return result.root

    @contextmanager
    def _count_request(self) -> Iterator[None]:
        self.active_requests += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.active_requests -= 1
            self.idle_since = monotonic()
            if not self.active_requests:
                self._idle.set()

    @contextmanager
    def _interpret_errors(self) -> Iterator[None]:
        """Replace errors of the SDK that stand for errors of session or connection."""
        try:
            yield
        except MCPError as error:
            cause = interpret_error(error, over_bridge=self.is_over_bridge, why=self.end_cause)
            if isinstance(cause, SessionExpired):
                self._end(str(cause))
            if cause is None:
                raise
            raise cause from None
        except ValidationError:
            raise ValueError("the server's answer does not follow the protocol") from None

    # in the session's task

    async def _run(self, opened: "asyncio.Future[None]", timeout_seconds: float) -> None:
        try:
            async with AsyncExitStack() as stack:
                own = await stack.enter_async_context(
                    receiving_for(self.transports.flight, self.route.server.key, keeps=False)
                )
                stack.push(lambda *_: self._note_refusal(own))
                async with asyncio.timeout(timeout_seconds):
                    transport = await self.transports.open_transport(
                        self.route, stack, on_secret=self._add_access_token, on_end=self._end_by_transport
                    )
                    self._client = await stack.enter_async_context(
                        Client(transport, client_info=_CLIENT, cache=None, message_handler=self._handle_message)
                    )
                if not opened.done():
                    opened.set_result(None)
                if self._offers_subscriptions():
                    subscription = asyncio.create_task(self._subscribe())
                    stack.push_async_callback(_cancel, subscription)
                await self._stop.wait()
        except Exception as error:
            self._fail(error, opened, timeout_seconds)
        finally:
            self.has_ended = True
            if not opened.done():
                opened.cancel()
            self.on_end(self)

    def _fail(self, error: Exception, opened: "asyncio.Future[None]", timeout_seconds: float) -> None:
        cause = explain_open_failure(error, timeout_seconds=timeout_seconds, secrets=self.secrets, known=self.failure)
        self.end_cause = self.end_cause or str(cause)
        if not opened.done():
            opened.set_exception(cause)
            opened.exception()  # the caller may be gone

    def _note_refusal(self, receiver: AnswerReceiver) -> None:
        """Note why the session ends, if a message outside of calls took too much memory."""
        if receiver.refused is not None and self.failure is None:
            self.failure = ServerUnavailable(ServerReason.PROTOCOL_ERROR, f"its answer: {receiver.refused.message}")

    def _end_by_transport(self, cause: ServerUnavailable) -> None:
        text = redact_output(str(cause), self.secrets, min_length=MIN_SECRET_LENGTH, max_chars=_MAX_OUTPUT)
        self.failure = ServerUnavailable(cause.reason, text)
        self._end(text)

    def _end(self, cause: str) -> None:
        self.has_ended = True
        self.end_cause = self.end_cause or cause
        self._stop.set()

    def _add_access_token(self, token: str) -> None:
        if len(token) >= MIN_SECRET_LENGTH and token not in self._access_tokens:
            self._access_tokens = [*self._access_tokens[-_MAX_ACCESS_TOKENS:], token]

    async def _handle_message(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.on_tools_changed()
        elif isinstance(message, Exception) and not self.has_ended:
            self.end_cause = redact_excerpt(str(message), self.secrets, max_chars=300)
            self.failure = ServerUnavailable(ServerReason.NOT_MCP, self.end_cause)

    def _offers_subscriptions(self) -> bool:
        tools = self.client.server_capabilities.tools
        return self.is_modern and tools is not None and tools.list_changed is True

    async def _subscribe(self) -> None:
        while not self.has_ended:
            with suppress(MCPError, SubscriptionLost, TimeoutError, ValidationError, RuntimeError):
                async with self.client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self.on_tools_changed()
            await asyncio.sleep(_RESUBSCRIBE_SECONDS)
            self.on_tools_changed()  # changes in between were missed


async def _cancel(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=2)
