"""What a mode offers to clients."""

from typing import Protocol

from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequiredResult,
    ListPromptsResult,
    ListToolsResult,
)

from mcp_exec_gateway.mcp.request import McpRequest


class Toolset(Protocol):
    """Tools and prompts of one mode. Its methods may raise HttpProblem and ApiError, which become protocol errors."""

    instructions: str
    """How to use the tools, for the model of the client."""

    async def list_tools(self, request: McpRequest, cursor: str | None) -> ListToolsResult:
        """Return one page of tools, in an order that does not change."""

    async def call_tool(
        self, request: McpRequest, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool. Errors that the model can correct are results; all others are raised."""

    async def list_prompts(self, request: McpRequest) -> ListPromptsResult:
        """Return the prompts."""

    async def get_prompt(self, request: McpRequest, params: GetPromptRequestParams) -> GetPromptResult:
        """Return one prompt."""
