"""Whether a tool's name is one, and what was probably meant."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from mcp_exec_tools.names import words
from mcp_exec_tools.patterns import TOOL_PATTERN, matches

_LONGEST: Final = 256
_FORMAT: Final = "write SERVER.TOOL, such as github.create_issue"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What is to be said of a name."""

    good: bool
    said: str
    hint: str = ""


def judge(name: str, known: Collection[tuple[str, str]]) -> Judgement:
    """Judges a tool's name or pattern by the tools that are known, as server and what they are called in Python."""
    dotted = _dotted(name)
    if len(dotted) > _LONGEST or not re.match(TOOL_PATTERN, dotted):
        return Judgement(good=False, said="this is no name of a tool", hint=_meant(name, known) or _FORMAT)
    server, _, tool = dotted.partition(".")
    if "*" in dotted:
        count = sum(matches(dotted, server=server, tool=tool) for server, tool in known)
        return Judgement(good=count > 0, said=f"speaks of {count} tools", hint=_meant(name, known) or _FORMAT)
    if (server, tool) in known:
        return Judgement(good=True, said=f"is a tool of {server}")
    here = [each for each in known if each[0] == server]
    for _, function in here:
        if words(function) == words(tool):
            return Judgement(good=True, said=f"is a tool of {server}; in Python it is called {function}")
    if here:
        said = f"{server} has no such tool among its {len(here)}"
    else:
        said = f"no server {server} has tools; those that have: {', '.join(sorted({each for each, _ in known})) or '-'}"
    return Judgement(good=False, said=said, hint=_meant(dotted, known) or "find it: GET /api/v1/mcp/tools/search")


def _dotted(name: str) -> str:
    """SERVER.TOOL, also of mcp__SERVER__TOOL."""
    parts = name.split("__", 2)
    return f"{parts[1]}.{parts[2]}" if len(parts) == 3 and parts[0] == "mcp" else name


def _meant(name: str, known: Collection[tuple[str, str]]) -> str:
    """What was probably meant, as a question; empty where nothing is near."""
    names = sorted(f"{server}.{tool}" for server, tool in known)
    # by the tool alone, where its server was left out
    near = [each for each in names if each.partition(".")[2] == name.rpartition(".")[2]]
    near += get_close_matches(name[:_LONGEST], names, n=3, cutoff=0.8)
    found = list(dict.fromkeys(near))[:3]
    return f"did you mean {' or '.join(found)}?" if found else ""
