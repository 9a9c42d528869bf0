"""The toolset: which function serves which tool."""

from typing import Final

from mcp import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequiredResult,
    ListPromptsResult,
    ListToolsResult,
)

from mcp_exec_gateway.mcp.code_mode import definitions
from mcp_exec_gateway.mcp.code_mode.definitions import INSTRUCTIONS, TOOLS, list_definitions
from mcp_exec_gateway.mcp.code_mode.discovery import InvalidArguments, describe_tools, search_tools
from mcp_exec_gateway.mcp.code_mode.files import read_file, write_file
from mcp_exec_gateway.mcp.code_mode.output import build_error
from mcp_exec_gateway.mcp.code_mode.run_code import read_arguments, run_code, run_skill, save_skill
from mcp_exec_gateway.mcp.request import McpRequest

_TOOLS: Final = {tool.name: tool for tool in TOOLS}


class CodeTools:
    """Toolset of `mode=code`."""

    instructions = INSTRUCTIONS

    async def list_tools(self, request: McpRequest, cursor: str | None) -> ListToolsResult:
        """Return all tools: one page."""
        if cursor is not None:
            raise MCPError(INVALID_PARAMS, "there is one page of tools only; send no cursor")
        return ListToolsResult(tools=list_definitions(request.sender.describe_pool()))

    async def call_tool(
        self, request: McpRequest, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool. Arguments that the model can correct are an error in the result."""
        if params.name in _TOOLS:
            params.arguments = read_arguments(_TOOLS[params.name], params.arguments or {})
        try:
            if params.name == "run_code":
                return await run_code(request, params)
            if params.name == "run_skill":
                return await run_skill(request, params)
            if params.name == "save_skill":
                return await save_skill(request.sender, params.arguments or {})
            if params.name == "search_tools":
                return await search_tools(request.sender, params.arguments or {})
            if params.name == "describe_tools":
                return await describe_tools(request.sender, params.arguments or {})
            if params.name == "read_file":
                return await read_file(request.sender, params.arguments or {})
            if params.name == "write_file":
                return await write_file(request.sender, params.arguments or {})
        except InvalidArguments as error:
            return build_error(str(error))
        names = ", ".join(tool.name for tool in TOOLS)
        raise MCPError(INVALID_PARAMS, f"there is no tool {params.name[:100]!r}; there are: {names}")

    async def list_prompts(self, request: McpRequest) -> ListPromptsResult:
        """Return the prompts."""
        return ListPromptsResult(prompts=[definitions.CODE_MODE])

    async def get_prompt(self, request: McpRequest, params: GetPromptRequestParams) -> GetPromptResult:
        """Return one prompt."""
        return await definitions.get_prompt(request.sender, params)
