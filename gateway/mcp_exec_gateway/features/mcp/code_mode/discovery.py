"""`search_tools` and `describe_tools`."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mcp_types import CallToolResult, TextContent

from mcp_exec_api.constants import Language, find_language
from mcp_exec_api.skill import SkillRef, SkillState
from mcp_exec_api.skill import read_language as read_skill_language
from mcp_exec_common.kube.objects import Object
from mcp_exec_gateway.core.http.json import replace_surrogates
from mcp_exec_gateway.features.mcp.budget import TokenBudget, cut_to_tokens, estimate_json
from mcp_exec_gateway.features.mcp.code_mode.definitions import DEFAULT_FOUND, MAX_DESCRIBED, MAX_FOUND
from mcp_exec_gateway.features.mcp.code_mode.output import build_error
from mcp_exec_gateway.features.mcp.request import Sender
from mcp_exec_gateway.features.skills.service import SkillService
from mcp_exec_gateway.features.tools.service import Tools
from mcp_exec_tools.names import find_close_names, fold
from mcp_exec_tools.search.index import Index
from mcp_exec_tools.text import shorten

Arguments = Mapping[str, Any]
_SUGGESTED: Final = 3
_EXPLAINED: Final = 3
"""Unknown names that get suggestions."""
_MAX_NAME: Final = 200
_FOUND_DESCRIPTION: Final = 300
"""Characters of a description in a search: a server's text can't push away the tools of others."""
_DESCRIPTION: Final = 2000
_MIN_OF_SERVER: Final = 3
_CHECKS: Final = 10
_CHECK_SECONDS: Final = 0.1
"""Time between two looks for a skill that this replica may not have observed yet."""
_ROOM_TOKENS: Final = 300
"""Room for what the text says besides the tools."""


class InvalidArguments(Exception):
    """Arguments that the model can correct. The text says what is wrong and what is allowed."""


def check_names(arguments: Arguments, *allowed: str) -> None:
    """Raise InvalidArguments if there is an argument besides these."""
    unknown = sorted(str(name)[:100] for name in arguments.keys() - set(allowed))
    if unknown:
        raise InvalidArguments(f"unknown arguments: {', '.join(unknown[:10])}; allowed are {', '.join(allowed)}")


def read_language(sender: Sender, arguments: Arguments) -> Language:
    """Return the language that an argument names, or that of the first choice. Raises InvalidArguments."""
    languages = sender.list_languages()
    given = arguments.get("language", languages[0])
    found = find_language(given)
    if found is None:
        raise InvalidArguments(f"language must be one of {', '.join(languages)}, not {str(given)[:100]}")
    return found


async def search_tools(sender: Sender, arguments: Arguments) -> CallToolResult:
    """Return the tools that match a query. Raises InvalidArguments and HttpProblem."""
    check_names(arguments, "query", "detail_level", "limit", "language")
    language = read_language(sender, arguments)
    limit = arguments.get("limit", DEFAULT_FOUND)
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_FOUND:
        raise InvalidArguments(f"limit must be an integer from 1 to {MAX_FOUND}, not {str(limit)[:100]}")
    query, level = arguments.get("query", ""), arguments.get("detail_level", "with_description")
    try:
        allow = sender.allowed_tools
        tools = await sender.dependencies.get(Tools).catalogs.use_index(
            sender.caller,
            lambda index: index.search(query, detail_level=level, limit=MAX_FOUND, allow=allow, language=language),
            language=language,
        )
    except ValueError as error:
        raise InvalidArguments(str(error)) from None
    tools = spread(tools, query=query, limit=limit)
    none = "no tool matches; try other words, or an empty query to list all tools"
    characters = _FOUND_DESCRIPTION if level == "with_description" else _DESCRIPTION
    return _build_result(_cut_descriptions(tools, characters), none=none, budget=sender.options.budget)


def spread(tools: list[dict[str, Any]], *, query: str, limit: int) -> list[dict[str, Any]]:
    """Return the first `limit` tools. While others have tools that match, no server gets more than half.

    A server that the query names may have all.
    """
    named = fold(query)
    most = max(limit // 2, _MIN_OF_SERVER)
    counts: Counter[str] = Counter()
    first: list[dict[str, Any]] = []
    rest: list[dict[str, Any]] = []
    for tool in tools:
        counts[tool["server"]] += 1
        is_named = bool(query.strip()) and fold(tool["server"]) in named
        (first if is_named or not query.strip() or counts[tool["server"]] <= most else rest).append(tool)
    return (first + rest)[:limit]


async def check_skill(sender: Sender, reference: SkillRef) -> Language | None:
    """Return the language of a skill; None if there are no skills. One that was saved a moment ago is waited for.

    Raises InvalidArguments if the caller has no such skill.
    """
    if (skills := sender.dependencies.find(SkillService)) is None:
        return None
    for left in reversed(range(_CHECKS)):
        versions: dict[str, dict[int, Object]] = {}
        for skill in skills.list_visible(sender.caller):
            versions.setdefault(skill["spec"]["name"], {})[skill["spec"]["version"]] = skill
        found = versions.get(reference.name, {})
        if found and reference.version in (None, *found):
            approved = [each for each in found.values() if each["status"]["state"] == SkillState.APPROVED]
            chosen = found[reference.version] if reference.version else [*approved, *found.values()][0]
            return read_skill_language(chosen["spec"])
        if left:
            await asyncio.sleep(_CHECK_SECONDS)
            continue
        if found:
            listed = ", ".join(map(str, sorted(found)))
            raise InvalidArguments(f"version: skill {reference.name} has no version {reference.version}, only {listed}")
        close = find_close_names(reference.name, versions)
        hint = f"did you mean {' or '.join(close)}?" if close else "search_tools finds skills"
        raise InvalidArguments(f"name: there is no skill {reference.name!r}; {hint}")
    raise AssertionError  # the last look returns or raises


def _cut_descriptions(tools: list[dict[str, Any]], characters: int) -> list[dict[str, Any]]:
    return [
        {**tool, "description": shorten(tool["description"], characters)} if tool.get("description") else tool
        for tool in tools
    ]


async def describe_tools(sender: Sender, arguments: Arguments) -> CallToolResult:
    """Return the schemas of tools. Raises InvalidArguments and HttpProblem."""
    check_names(arguments, "names", "language")
    language = read_language(sender, arguments)
    names = arguments.get("names")
    if not isinstance(names, list) or not 1 <= len(names) <= MAX_DESCRIBED:
        raise InvalidArguments(f"names must be a list of 1 to {MAX_DESCRIBED} names, SERVER.TOOL each")
    names, allow = [str(name)[:_MAX_NAME] for name in names], sender.allowed_tools
    found, unknown = await sender.dependencies.get(Tools).catalogs.use_index(
        sender.caller, lambda index: _find_all(index, names, allow, language), language=language
    )
    if not found:
        return build_error("; ".join(unknown))
    return _build_result(_cut_descriptions(found, _DESCRIPTION), notes=unknown, budget=sender.options.budget)


def _find_all(
    index: Index, names: list[str], allow: list[str] | None, language: Language
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the tools of these names, and a sentence for each name that is none. Suggestions need a search each."""
    found: list[dict[str, Any]] = []
    unknown: list[str] = []
    for name in names:
        tool = index.find(name, allow=allow, language=language)
        if tool is not None:
            found.append(tool)
        elif len(unknown) < _EXPLAINED:
            unknown.append(_explain_unknown(index, name, allow))
        else:
            unknown.append(f"there is no tool {name!r}")
    return found, unknown


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
    description = shorten(str(tool.get("description") or ""), _DESCRIPTION)
    return {**shown, "description": f"{description}\n(its schemas are too large to show)"}
