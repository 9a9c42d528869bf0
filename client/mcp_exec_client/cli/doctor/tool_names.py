"""Check of a tool's name, with suggestions."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from mcp_exec_tools.names import TOOL_PATTERN, matches, words

_MAX_LENGTH: Final = 256
_FORMAT: Final = "write SERVER.TOOL, such as github.create_issue"


@dataclass(frozen=True, kw_only=True)
class ToolNameCheck:
    """Result of the check of one name."""

    valid: bool
    message: str
    hint: str = ""
    """What to do if it is not valid."""


def check_tool_name(name: str, known: Collection[tuple[str, str]]) -> ToolNameCheck:
    """Check a tool's name or pattern. `known` has server and Python name of each known tool."""
    dotted = _to_dotted(name)
    if len(dotted) > _MAX_LENGTH or not re.match(TOOL_PATTERN, dotted):
        return ToolNameCheck(valid=False, message="not a tool name", hint=_suggest(name, known) or _FORMAT)
    server, _, tool = dotted.partition(".")
    if "*" in dotted:
        count = sum(matches(dotted, server=server, tool=tool) for server, tool in known)
        return ToolNameCheck(valid=count > 0, message=f"matches {count} tools", hint=_suggest(name, known) or _FORMAT)
    if (server, tool) in known:
        return ToolNameCheck(valid=True, message=f"is a tool of {server}")
    functions = [function for other, function in known if other == server]
    for function in functions:
        if words(function) == words(tool):
            return ToolNameCheck(valid=True, message=f"is a tool of {server}; its Python name is {function}")
    if functions:
        message = f"{server} has no such tool among its {len(functions)}"
    else:
        servers = ", ".join(sorted({server for server, _ in known})) or "none"
        message = f"no server {server} has tools; servers with tools: {servers}"
    hint = _suggest(dotted, known) or "find it: GET /api/v1/mcp/tools/search"
    return ToolNameCheck(valid=False, message=message, hint=hint)


def _to_dotted(name: str) -> str:
    """Return SERVER.TOOL for mcp__SERVER__TOOL, and any other name unchanged."""
    parts = name.split("__", 2)
    return f"{parts[1]}.{parts[2]}" if len(parts) == 3 and parts[0] == "mcp" else name


def _suggest(name: str, known: Collection[tuple[str, str]]) -> str:
    """Return a question with similar names; empty if no name is similar."""
    names = sorted(f"{server}.{tool}" for server, tool in known)
    # the tool alone, in case its server is missing or wrong
    candidates = [known_name for known_name in names if known_name.partition(".")[2] == name.rpartition(".")[2]]
    candidates += get_close_matches(name[:_MAX_LENGTH], names, n=3, cutoff=0.8)
    suggestions = list(dict.fromkeys(candidates))[:3]
    return f"did you mean {' or '.join(suggestions)}?" if suggestions else ""
