"""The toolsets: which tools a caller sees, and how one is called."""

import asyncio
from typing import Final

from mcp import MCPError
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    CallToolRequestParams,
    CallToolResult,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequiredResult,
    ListPromptsResult,
    ListToolsResult,
)

from mcp_exec_common.broker.grants import ApprovedCall
from mcp_exec_gateway.mcp.cancellation import digest_request
from mcp_exec_gateway.mcp.code_mode.definitions import INSTRUCTIONS as CODE_INSTRUCTIONS
from mcp_exec_gateway.mcp.code_mode.definitions import TOOLS as CODE_TOOLS
from mcp_exec_gateway.mcp.code_mode.definitions import list_definitions
from mcp_exec_gateway.mcp.code_mode.tools import CodeTools
from mcp_exec_gateway.mcp.direct_mode.consent import ask_for_consent, read_consent
from mcp_exec_gateway.mcp.direct_mode.listing import build_page
from mcp_exec_gateway.mcp.direct_mode.results import build_result
from mcp_exec_gateway.mcp.request import McpRequest
from mcp_exec_gateway.tools.direct import DirectAccess, call_tool
from mcp_exec_gateway.tools.exported import ToolSelection
from mcp_exec_gateway.tools.running_calls import CallCancelled
from mcp_exec_tools.names import find_close_names

_CACHED_MS: Final = 5_000
"""How long clients may keep a list of tools, which changes with the ToolServers."""
_CODE_NAMES: Final = frozenset(tool.name for tool in CODE_TOOLS)


class DirectTools:
    """Toolset of `mode=direct`."""

    instructions = "The tools are those of several MCP servers; SERVER__TOOL is the name of a tool."

    def __init__(self, *, only_marked: bool = False) -> None:
        self._only_marked = only_marked
        """Whether to offer only the tools that their ToolServers mark as cheap."""

    async def list_tools(self, request: McpRequest, cursor: str | None) -> ListToolsResult:
        """Return one page of the tools that the caller may use."""
        selection = await self.select(request, check_access(request))
        # schemas are converted when they are first listed, which takes a second for servers that try
        page = await asyncio.to_thread(build_page, selection.tools, cursor, is_modern=request.is_modern)
        return ListToolsResult(tools=page.tools, next_cursor=page.next_cursor, ttl_ms=_CACHED_MS, cache_scope="private")

    async def call_tool(
        self, request: McpRequest, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool by the broker. Denials are errors in the result, with the broker's reason."""
        sender = request.sender
        await sender.authorize("create")
        access = check_access(request)
        selection = await self.select(request, access)
        tool = selection.by_name.get(params.name)
        if tool is None:
            raise _build_unknown_error(params.name, selection)
        consent = await read_consent(request, params, tool)
        if isinstance(consent, CallToolResult):
            return consent
        return await self._call(request, params, access=access, selection=selection, approved=consent)

    async def select(self, request: McpRequest, access: DirectAccess) -> ToolSelection:
        """Return the tools that the caller may use in this mode."""
        known = await request.sender.dependencies.catalogs.get(request.sender.namespace)
        return await known.exported.select(access.rights, only_direct=self._only_marked)

    async def _call(
        self,
        request: McpRequest,
        params: CallToolRequestParams,
        *,
        access: DirectAccess,
        selection: ToolSelection,
        approved: ApprovedCall | None,
    ) -> CallToolResult | InputRequiredResult:
        dependencies, tool = request.sender.dependencies, selection.by_name[params.name]
        try:
            with dependencies.running_calls.hold(digest_request(request)):
                answer = await call_tool(
                    dependencies.direct_calls,
                    access,
                    tool,
                    tool.model.restore(params.arguments or {}),
                    memory=request.memory,
                    approved=approved,
                )
        except CallCancelled:
            raise MCPError(INVALID_REQUEST, "the client cancelled the request") from None
        if answer.get("reason") == "ApprovalRequired":
            return await ask_for_consent(request, answer)
        return build_result(answer, is_modern=request.is_modern)

    async def list_prompts(self, request: McpRequest) -> ListPromptsResult:
        """Return no prompts."""
        return ListPromptsResult(prompts=[])

    async def get_prompt(self, request: McpRequest, params: GetPromptRequestParams) -> GetPromptResult:
        """Raise MCPError: there are none."""
        raise MCPError(INVALID_PARAMS, f"there is no prompt {params.name[:100]!r}; this mode has none")


class HybridTools(CodeTools):
    """Toolset of `mode=hybrid`: that of `mode=code`, and the tools that their ToolServers mark as cheap."""

    instructions = (
        f"{CODE_INSTRUCTIONS} Tools whose name contains `__` can also be called directly: do so for a single call with "
        "a short result."
    )

    def __init__(self) -> None:
        self.direct = DirectTools(only_marked=True)

    async def list_tools(self, request: McpRequest, cursor: str | None) -> ListToolsResult:
        """Return the tools of code on the first page, before the others."""
        page = await self.direct.list_tools(request, cursor)
        first = list_definitions(request.sender.describe_pool()) if cursor is None else []
        return page.model_copy(update={"tools": [*first, *page.tools]})

    async def call_tool(
        self, request: McpRequest, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool of code, or another one directly."""
        if params.name in _CODE_NAMES:
            return await super().call_tool(request, params)
        return await self.direct.call_tool(request, params)


def check_access(request: McpRequest) -> DirectAccess:
    """Return the caller with what it may use. Raises HttpProblem."""
    sender, options = request.sender, request.sender.options
    return DirectAccess.check(
        sender.caller,
        pools=sender.dependencies.pools,
        pool=options.pool,
        tools=sender.allowed_tools,
        user=options.user,
        conversation=options.conversation,
    )


def _build_unknown_error(name: str, selection: ToolSelection) -> MCPError:
    close = find_close_names(name, selection.by_name)
    suggestion = f"; did you mean {' or '.join(close)}?" if close else "; tools/list names those that you may use"
    return MCPError(INVALID_PARAMS, f"there is no tool {name[:100]!r}{suggestion}")
