"""The SDK's server of each mode, and the streams that say when its tools change: `notifications/tools/list_changed`.

In revision 2026-07-28 a client asks for such a stream by `subscriptions/listen`, in the revisions before by a GET.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from mcp import MCPError
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import ListenHandler, ServerEvent, ToolsListChanged
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    CompleteRequestParams,
    CompleteResult,
    EmptyResult,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    RequestParams,
    ServerCapabilities,
    ServerTasksCapability,
    ServerTasksRequestsCapability,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    TasksCallCapability,
    TasksCancelCapability,
    TasksToolsCapability,
)
from mcp_types.methods import CacheableMethod

from mcp_exec_api.wire.problems import PROBLEM_PREFIX
from mcp_exec_api.wire.version import RELEASE
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_gateway.core.executions.index import ShuttingDown
from mcp_exec_gateway.core.http.limits import RequestSlots
from mcp_exec_gateway.core.http.problems import HttpProblem, unavailable
from mcp_exec_gateway.features.mcp.code_mode.run import RunOutcome
from mcp_exec_gateway.features.mcp.code_mode.task_state import EXTENSION as TASKS
from mcp_exec_gateway.features.mcp.code_mode.tasks import METHODS as TASK_METHODS
from mcp_exec_gateway.features.mcp.code_mode.tasks import create_task, wants_task
from mcp_exec_gateway.features.mcp.code_mode.tools import CodeTools
from mcp_exec_gateway.features.mcp.direct import DirectTools, HybridTools, check_access
from mcp_exec_gateway.features.mcp.request import Context, McpRequest, Mode, fit_client, get_request
from mcp_exec_gateway.features.mcp.resources.addresses import TEMPLATES
from mcp_exec_gateway.features.mcp.resources.completion import complete
from mcp_exec_gateway.features.mcp.resources.contents import read_resource
from mcp_exec_gateway.features.mcp.resources.listing import list_resources
from mcp_exec_gateway.features.mcp.resources.skills import (
    EXTENSION,
    GetSkillParams,
    GetSkillResult,
    ListSkillsResult,
    get_skill,
    list_skills,
)
from mcp_exec_gateway.features.mcp.transport.messages import CHANGES_METHOD
from mcp_exec_gateway.features.mcp.transport.response import ContinueElsewhere
from mcp_exec_gateway.features.tools.catalogs import ExportedTools, ToolRights
from mcp_exec_gateway.features.tools.service import Tools

log = logging.getLogger(__name__)

McpServer = Server[Any]
Result = TypeVar("Result")

TRY_LATER: Final = -32000
"""Code of errors that may succeed later: a limit of the caller is reached, or a part of the system is unavailable."""
_CACHED_MS: Final = 60_000
_CACHED_METHODS: Final[tuple[CacheableMethod, ...]] = (
    "tools/list", "prompts/list", "server/discover", "resources/templates/list",
)  # fmt: skip
POLL_SECONDS: Final = 5.0
"""Seconds between two looks at the tools, which the gateway reads from the broker as often at most."""
_MAX_EVENTS: Final = 16
"""Changes that wait for a slow client, before its stream ends."""
_MAX_SECONDS: Final = 3600.0
"""Seconds until a stream ends. Its client opens another one, and its rights are checked again."""


class Toolset(Protocol):
    """Tools and prompts of one mode. Its methods may raise HttpProblem and ApiError, which become protocol errors."""

    instructions: str
    """How to use the tools, for the model of the client."""

    async def list_tools(self, request: McpRequest, cursor: str | None) -> ListToolsResult:
        """Return one page of tools, in an order that does not change."""

    async def call_tool(self, request: McpRequest, params: CallToolRequestParams) -> RunOutcome:
        """Call a tool. Errors that the model can correct are results; all others are raised."""

    async def list_prompts(self, request: McpRequest) -> ListPromptsResult:
        """Return the prompts."""

    async def get_prompt(self, request: McpRequest, params: GetPromptRequestParams) -> GetPromptResult:
        """Return one prompt."""


class ToolChanges:
    """Reports changes of the tools that a toolset offers. Each stream holds a slot of its caller."""

    def __init__(self, toolset: DirectTools, *, slots: RequestSlots) -> None:
        self._toolset, self._slots = toolset, slots

    async def listen(self, context: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """Serve `subscriptions/listen`. Raises HttpProblem, a 429, if the caller has too many streams."""
        request = get_request(context)
        with self._hold_slot(request):
            tools = _SeenTools()
            await self._look(request, tools)
            bus = _OneStream(lambda: self._watch(request, tools))
            bus.handler = ListenHandler(bus, max_subscriptions=1, max_buffered_events=_MAX_EVENTS)
            return await bus.handler(context, params)

    async def stream(self, context: Context, params: RequestParams) -> EmptyResult:
        """Serve the GET of the revisions before. Raises HttpProblem, a 429, if the caller has too many streams."""
        request = get_request(context)
        with self._hold_slot(request):
            tools = _SeenTools()
            await self._look(request, tools)
            await request.exchange.open_stream()
            async for _ in self._watch(request, tools):
                await request.exchange.notify("notifications/tools/list_changed", None)
        raise ContinueElsewhere

    def _hold_slot(self, request: McpRequest) -> AbstractContextManager[None]:
        caller = request.sender.caller
        return self._slots.hold(caller.name, limit=caller.limits.max_streams)

    async def _watch(self, request: McpRequest, tools: "_SeenTools") -> AsyncIterator[None]:
        """Yield after each change, until the gateway stops or the stream is old."""
        closing = request.sender.dependencies.shutdown.closing
        end = asyncio.get_running_loop().time() + _MAX_SECONDS
        while asyncio.get_running_loop().time() < end:
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await closing.wait()
                return
            last = tools.digest
            await self._look(request, tools)
            if tools.digest != last:
                yield

    async def _look(self, request: McpRequest, tools: "_SeenTools") -> None:
        """Look at the caller's tools, and change nothing if they are unknown now."""
        sender, catalogs = request.sender, request.sender.dependencies.get(Tools).catalogs
        try:
            access = check_access(request)
            source = ((await catalogs.get(sender.namespace)).exported, access.rights)
            if tools.source != source:  # else selections of many streams would be computed at each look
                selection = await self._toolset.select(request, access)
                tools.digest = await catalogs.threads.run(sender.caller.name, lambda: selection.digest)
                tools.source = source
        except HttpProblem:
            return


@dataclass(kw_only=True, eq=False)
class _SeenTools:
    """The tools that a stream saw last."""

    digest: str = ""
    source: tuple[ExportedTools, ToolRights] | None = None
    """What they were selected from."""


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


@dataclass(frozen=True, kw_only=True)
class McpServers:
    """The server of each mode."""

    by_mode: Mapping[Mode, McpServer]
    listeners: RequestSlots
    """Clients that wait for changes of their tools, by caller."""


def build_servers(*, listeners: RequestSlots) -> McpServers:
    """Build the server of each mode."""
    direct, hybrid = DirectTools(), HybridTools()
    changes = ToolChanges(hybrid.direct, slots=listeners)
    return McpServers(
        listeners=listeners,
        by_mode={
            "code": add_tasks(add_resources(build_server(CodeTools()))),
            "direct": build_server(direct, changes=ToolChanges(direct, slots=listeners)),
            "hybrid": add_tasks(add_resources(build_server(hybrid, changes=changes))),
        },
    )


class _GatewayServer(McpServer):
    """A server that declares to clients with sessions what the SDK does not: that its tools change, and tasks."""

    changes_tools = False
    offers_tasks = False

    def get_capabilities(self, *options: Any, **more: Any) -> ServerCapabilities:
        """Return what the server declares; its revision takes what it knows."""
        capabilities = super().get_capabilities(*options, **more)
        if self.offers_tasks:
            requests = ServerTasksRequestsCapability(tools=TasksToolsCapability(call=TasksCallCapability()))
            capabilities.tasks = ServerTasksCapability(cancel=TasksCancelCapability(), requests=requests)
        return capabilities

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *options: Any, **more: Any
    ) -> InitializationOptions:
        """Return what the server declares in `initialize`."""
        changing = notification_options or NotificationOptions(tools_changed=self.changes_tools)
        return super().create_initialization_options(changing, *options, **more)


def build_server(toolset: Toolset, *, changes: ToolChanges | None = None) -> _GatewayServer:
    """Build the SDK's server with a mode's tools and prompts. `changes` reports changes of the tools."""

    async def list_tools(context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        cursor, request = params.cursor if params else None, get_request(context)
        page = await _translate_problems(toolset.list_tools(request, cursor))
        if request.sender.options.structured:
            return page
        # a client refuses a result without the structured content that its tool declares
        tools = [tool.model_copy(update={"output_schema": None}) for tool in page.tools]
        return page.model_copy(update={"tools": tools})

    async def call_tool(context: Context, params: CallToolRequestParams) -> Any:
        # the SDK's type of results has none of extensions
        request = get_request(context)
        result = await _translate_problems(toolset.call_tool(request, params))
        return fit_client(result, request.sender.options) if isinstance(result, CallToolResult) else result

    async def list_prompts(context: Context, params: PaginatedRequestParams | None) -> ListPromptsResult:
        return await _translate_problems(toolset.list_prompts(get_request(context)))

    async def get_prompt(context: Context, params: GetPromptRequestParams) -> GetPromptResult:
        return await _translate_problems(toolset.get_prompt(get_request(context), params))

    server = _GatewayServer(
        "mcp-exec",
        title="mcp-exec",
        version=RELEASE,
        instructions=toolset.instructions,
        cache_hints=dict.fromkeys(_CACHED_METHODS, CacheHint(ttl_ms=_CACHED_MS, scope="private")),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
    )
    if changes is not None:
        server.changes_tools = True
        add_change_streams(server, changes)
    return server


def add_change_streams(server: McpServer, changes: ToolChanges) -> None:
    """Let a server report changes of its tools."""

    async def listen(context: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        return await _translate_problems(changes.listen(context, params))

    async def stream(context: Context, params: RequestParams) -> EmptyResult:
        return await _translate_problems(changes.stream(context, params))

    server.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, listen)
    server.add_request_handler(CHANGES_METHOD, RequestParams, stream)


def add_resources(server: _GatewayServer) -> _GatewayServer:
    """Let a server serve resources, their completion, and skills as an extension. Returns the server."""

    async def list_all(context: Context, params: PaginatedRequestParams) -> ListResourcesResult:
        return await _translate_problems(list_resources(get_request(context).sender, params.cursor))

    async def list_templates(context: Context, params: PaginatedRequestParams) -> ListResourceTemplatesResult:
        return ListResourceTemplatesResult(resource_templates=list(TEMPLATES))

    async def read(context: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        return await _translate_problems(read_resource(get_request(context).sender, params.uri))

    async def complete_argument(context: Context, params: CompleteRequestParams) -> CompleteResult:
        return await _translate_problems(complete(get_request(context).sender, params))

    async def list_own_skills(context: Context, params: PaginatedRequestParams) -> ListSkillsResult:
        return list_skills(get_request(context).sender, params)

    async def get_one_skill(context: Context, params: GetSkillParams) -> GetSkillResult:
        return get_skill(get_request(context).sender, params)

    server.extensions[EXTENSION] = {}
    server.add_request_handler("resources/list", PaginatedRequestParams, list_all)
    server.add_request_handler("resources/templates/list", PaginatedRequestParams, list_templates)
    server.add_request_handler("resources/read", ReadResourceRequestParams, read)
    server.add_request_handler("completion/complete", CompleteRequestParams, complete_argument)
    server.add_request_handler("skills/list", PaginatedRequestParams, list_own_skills)
    server.add_request_handler("skills/get", GetSkillParams, get_one_skill)
    return server


def add_tasks(server: _GatewayServer) -> _GatewayServer:
    """Let a server offer its runs as tasks. Returns the server."""

    def add(method: str, parameters: type[RequestParams], handle: Callable[[McpRequest, Any], Awaitable[Any]]) -> None:
        async def serve(context: Context, params: Any) -> Any:
            return await _translate_problems(handle(get_request(context), params))

        server.add_request_handler(method, parameters, serve)

    async def create_wanted(ctx: Context, call_next: CallNext) -> HandlerResult:
        # not by the handler: the SDK takes no result of a call that is a task in revisions with sessions
        request = get_request(ctx)
        if not wants_task(request, ctx.method, ctx.params):
            return await call_next(ctx)
        params = CallToolRequestParams.model_validate(ctx.params, by_name=False)
        return await _translate_problems(create_task(request, params))

    for method, (parameters, handle) in TASK_METHODS.items():
        add(method, parameters, handle)
    server.middleware.append(create_wanted)
    server.extensions[TASKS] = {}
    server.offers_tasks = True
    return server


async def _translate_problems(call: Awaitable[Result]) -> Result:
    """Return the result. Problems, and the API server's errors, become protocol errors."""
    try:
        return await call
    except HttpProblem as problem:
        raise translate_problem(problem) from problem
    except ApiError as error:
        log.error("the API server failed an MCP request: %s", error)
        raise translate_problem(unavailable("the API server failed the request")) from error
    except ShuttingDown as error:
        raise translate_problem(unavailable("this replica of the gateway is shutting down; try again")) from error


def translate_problem(problem: HttpProblem) -> MCPError:
    """Return the protocol error of a problem, with the problem's fields as its data."""
    code = INVALID_PARAMS if problem.status < 500 else INTERNAL_ERROR
    if problem.status in (429, 503):
        code = TRY_LATER
    data: dict[str, Any] = {
        "type": PROBLEM_PREFIX + problem.kind,
        "status": problem.status,
        "errors": [error.model_dump() for error in problem.errors],
    }
    if problem.execution is not None:
        data["execution"] = problem.execution
    if retry_after := problem.headers.get("Retry-After"):
        data["retryAfterSeconds"] = int(retry_after)
    return MCPError(code, problem.detail, data)
