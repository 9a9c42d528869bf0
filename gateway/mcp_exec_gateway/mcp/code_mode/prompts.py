"""The prompt `code-mode`: the system prompt of a model that works by code, with the servers that the caller may use."""

from collections.abc import Mapping
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, GetPromptRequestParams, GetPromptResult, Prompt, PromptMessage, TextContent

from mcp_exec_common.util.text import shorten_line
from mcp_exec_gateway.mcp.code_mode.discovery import read_allowed_tools
from mcp_exec_gateway.mcp.request import Sender
from mcp_exec_tools.prompt import VERSION, system_prompt
from mcp_exec_tools.search.index import MAX_LIMIT

CODE_MODE: Final = Prompt(
    name="code-mode",
    title="Work by code",
    description=f"How to work with run_code, search_tools and describe_tools (version {VERSION})",
)
_MAX_LIBRARIES: Final = 20
_MAX_LINE: Final = 400


def describe_environment(sender: Sender) -> str:
    """Return a line that says what code finds in the pool of the URL; empty if that is not known."""
    pool = sender.dependencies.pools.find(sender.namespace, sender.options.pool)
    return "" if pool is None else format_environment(pool.capacity.to_api())


def format_environment(capacity: Mapping[str, Any]) -> str:
    """Return the line for what a pool offers."""
    python, libraries = capacity.get("python"), capacity.get("libraries")
    if not isinstance(python, str) or not python:
        return ""
    names = [f"{name} {version}" for name, version in sorted(libraries.items())] if libraries else []
    shown = ", ".join(names[:_MAX_LIBRARIES]) or "the standard library only"
    return shorten_line(f"Python {python}; libraries: {shown}", _MAX_LINE) + "; nothing can be installed."


async def get_prompt(sender: Sender, params: GetPromptRequestParams) -> GetPromptResult:
    """Return the prompt. Raises MCPError for another name, and HttpProblem if the tools cannot be read."""
    if params.name != CODE_MODE.name or params.arguments:
        raise MCPError(INVALID_PARAMS, f"there is one prompt, {CODE_MODE.name}, without arguments")
    index = await sender.dependencies.catalogs.get_index(sender.namespace)
    tools = index.search("", limit=MAX_LIMIT, allow=read_allowed_tools(sender))
    servers = sorted({str(tool["server"]) for tool in tools})
    text = system_prompt(servers, run_tool="run_code", describe_tool="describe_tools")
    if line := describe_environment(sender):
        text = f"{text}\n{line}\n"
    return GetPromptResult(
        description=CODE_MODE.description,
        messages=[PromptMessage(role="user", content=TextContent(text=text))],
    )
