"""The prompt `code-mode`: the system prompt of a model that works by code, with the servers that the caller may use."""

from typing import Final

from mcp import MCPError
from mcp_types import INVALID_PARAMS, GetPromptRequestParams, GetPromptResult, Prompt, PromptMessage, TextContent

from mcp_exec_gateway.mcp.request import Sender
from mcp_exec_tools.prompt import VERSION, system_prompt
from mcp_exec_tools.search.index import MAX_LIMIT

CODE_MODE: Final = Prompt(
    name="code-mode",
    title="Work by code",
    description=f"How to work with run_code, search_tools and describe_tools (version {VERSION})",
)


async def get_prompt(sender: Sender, params: GetPromptRequestParams) -> GetPromptResult:
    """Return the prompt. Raises MCPError for another name, and HttpProblem if the tools cannot be read."""
    if params.name != CODE_MODE.name or params.arguments:
        raise MCPError(INVALID_PARAMS, f"there is one prompt, {CODE_MODE.name}, without arguments")
    index = await sender.dependencies.catalogs.get_index(sender.namespace)
    tools = index.search("", limit=MAX_LIMIT, allow=sender.allowed_tools)
    servers = sorted({str(tool["server"]) for tool in tools})
    text = system_prompt(servers, run_tool="run_code", describe_tool="describe_tools", libraries=sender.describe_pool())
    return GetPromptResult(
        description=CODE_MODE.description,
        messages=[PromptMessage(role="user", content=TextContent(text=text))],
    )
