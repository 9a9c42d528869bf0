"""`search_tools` and `describe_tools`."""

import contextlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mcp_types import CallToolResult, TextContent

from mcp_exec_common.util.text import shorten
from mcp_exec_gateway.http.json import replace_surrogates
from mcp_exec_gateway.mcp.budget import TokenBudget, cut_to_tokens, estimate_json
from mcp_exec_gateway.mcp.code_mode.definitions import DEFAULT_FOUND, MAX_DESCRIBED, MAX_FOUND
from mcp_exec_gateway.mcp.code_mode.output import build_error
from mcp_exec_gateway.mcp.request import Sender
from mcp_exec_tools.names import split_tool
from mcp_exec_tools.search.index import Index

Arguments = Mapping[str, Any]
_SUGGESTED: Final = 3
_MAX_NAME: Final = 200
_MAX_DESCRIPTION: Final = 1000
_ROOM_TOKENS: Final = 300
"""Room for what the text says besides the tools."""


class InvalidArguments(Exception):
    """Arguments that the model can correct. The text says what is wrong and what is allowed."""


def check_names(arguments: Arguments, *allowed: str) -> None:
    """Raise InvalidArguments if there is an argument besides these."""
    unknown = sorted(str(name)[:100] for name in arguments.keys() - set(allowed))
    if unknown:
        raise InvalidArguments(f"unknown arguments: {', '.join(unknown[:10])}; allowed are {', '.join(allowed)}")


async def search_tools(sender: Sender, arguments: Arguments) -> CallToolResult:
    """Return the tools that match a query. Raises InvalidArguments and HttpProblem."""
    check_names(arguments, "query", "detail_level", "limit")
    limit = arguments.get("limit", DEFAULT_FOUND)
    if isinstance(limit, int) and limit > MAX_FOUND:
        raise InvalidArguments(f"limit must be an integer from 1 to {MAX_FOUND}, not {limit}")
    index = await sender.dependencies.catalogs.get_index(sender.namespace)
    try:
        tools = _search(
            index,
            arguments.get("query", ""),
            detail_level=arguments.get("detail_level", "with_description"),
            limit=limit,
            allow=sender.allowed_tools,
        )
    except ValueError as error:
        raise InvalidArguments(str(error)) from None
    none = "no tool matches; try other words, or an empty query to list all tools"
    return _build_result(tools, none=none, budget=sender.options.budget)


async def describe_tools(sender: Sender, arguments: Arguments) -> CallToolResult:
    """Return the schemas of tools. Raises InvalidArguments and HttpProblem."""
    check_names(arguments, "names")
    names = arguments.get("names")
    if not isinstance(names, list) or not 1 <= len(names) <= MAX_DESCRIBED:
        raise InvalidArguments(f"names must be a list of 1 to {MAX_DESCRIBED} names, SERVER.TOOL each")
    index = await sender.dependencies.catalogs.get_index(sender.namespace)
    allow = sender.allowed_tools
    found, unknown = [], []
    for name in names:
        tool = _find(index, str(name)[:_MAX_NAME], allow)
        if tool is None:
            unknown.append(_explain_unknown(index, str(name)[:_MAX_NAME], allow))
        else:
            found.append(tool)
    if not found:
        return build_error("; ".join(unknown))
    return _build_result(found, notes=unknown, budget=sender.options.budget)


def _search(index: Index, query: Any, *, allow: Iterable[str] | None, **options: Any) -> list[dict[str, Any]]:
    return index.search(query, allow=allow, **options)


def _find(index: Index, name: str, allow: list[str] | None) -> dict[str, Any] | None:
    """Return the tool whose name is meant exactly, in any spelling."""
    for tool in index.search(name, detail_level="full", limit=2, allow=allow):
        if _normalize(name) in (_normalize(tool["name"]), _normalize(f"{tool['server']}.{tool['name']}")):
            return tool
    return None


def _normalize(name: str) -> str:
    with contextlib.suppress(ValueError):
        name = ".".join(split_tool(name))
    return "".join(character for character in name.lower() if character.isalnum())


def _explain_unknown(index: Index, name: str, allow: list[str] | None) -> str:
    similar = [f"{tool['server']}.{tool['name']}" for tool in index.search(name, limit=_SUGGESTED, allow=allow)]
    hint = f"similar: {', '.join(similar)}" if similar else "use search_tools to find tools"
    return f"there is no tool {name!r}; {hint}"


def _build_result(
    tools: list[dict[str, Any]], *, budget: TokenBudget, none: str = "", notes: Iterable[str] = ()
) -> CallToolResult:
    tools = replace_surrogates(tools)
    shown = _fit(tools, tokens=min(budget.text, budget.structured) - _ROOM_TOKENS)
    lines = [json.dumps(tool, ensure_ascii=False, separators=(",", ":")) for tool in shown]
    left = len(tools) - len(shown)
    more = [f"({left} more do not fit: ask for fewer tools or less detail)"] if left else []
    text = cut_to_tokens("\n".join([*(lines or [none]), *more, *notes]), budget.text)
    return CallToolResult(content=[TextContent(text=text)], structured_content={"tools": shown})


def _fit(tools: list[dict[str, Any]], *, tokens: int) -> list[dict[str, Any]]:
    """Return the first tools that fit; of a first one that does not, what fits."""
    for number, tool in enumerate(tools):
        tokens -= estimate_json(tool)
        if tokens < 0:
            return tools[:number] or [_shorten_tool(tool)]
    return tools


def _shorten_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool without its schemas, which are larger than a result."""
    shown: dict[str, Any] = {name: tool[name] for name in ("name", "server", "import") if name in tool}
    description = shorten(str(tool.get("description") or ""), _MAX_DESCRIPTION)
    return {**shown, "description": f"{description}\n(its schemas are too large to show)"}
