"""Patterns of `spec.tools` that match no tool: a misspelled one would grant nothing, without a word."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from mcp_exec_api.code_findings import MAX_NOTE_CHARACTERS
from mcp_exec_api.sandbox_pool import PoolTools
from mcp_exec_tools.names import find_close_names
from mcp_exec_tools.patterns import ToolPatterns, name_matches
from mcp_exec_tools.text import shorten_line

_MAX_NAMED: Final = 3
"""Patterns, and names that may be meant, in one text."""
_NAME_CHARACTERS: Final = 48
_MAX_COMPARED: Final = 100
"""Names that a misspelled one is compared with: 6 ms, in the worst case."""


@dataclass(frozen=True)
class ToolNames:
    """Names of a namespace's servers and their tools."""

    by_server: Mapping[str, Sequence[str] | None]
    """Sorted names of tools by server; None if the server exists and its tools are not known."""

    def find_servers(self, pattern: str) -> list[str]:
        """Return the servers that the first part of a pattern matches."""
        if not pattern.endswith("*"):
            return [pattern] if pattern in self.by_server else []
        return sorted(server for server in self.by_server if name_matches(pattern, server))

    def has(self, server: str, pattern: str) -> bool:
        """Return whether the second part of a pattern matches a tool of the server, or may do so."""
        names = self.by_server[server]
        if names is None:
            return True
        wanted = pattern.removesuffix("*")
        place = bisect_left(names, wanted)
        return place < len(names) and name_matches(pattern, names[place])


def describe_unmatched(patterns: Collection[str], *, names: ToolNames, pool: PoolTools, may_name_all: bool) -> str:
    """Return a sentence on the patterns that match no tool; empty if there is none, or if the others may be meant.

    If some patterns match, only those are named that resemble an unused name: lists may be written for several
    namespaces. A star in place of a server asks for whatever there is, so it is never wrong. Names are given only of
    what the pool allows, and only if the caller `may_name_all`: a limited one learns of no server of others.
    """
    asked = [pattern.partition(".")[::2] for pattern in patterns]
    unmatched = [
        (server, tool)
        for server, tool in asked
        if server != "*" and not any(names.has(known, tool) for known in names.find_servers(server))
    ]
    if not unmatched:
        return ""
    unused = _Unused(names, pool=pool, used=ToolPatterns(patterns)) if may_name_all else None
    near = {each: unused.find_near(*each) for each in unmatched[:_MAX_NAMED]} if unused is not None else {}
    if len(unmatched) < len(asked):
        unmatched = [each for each in unmatched if near.get(each)]
        if not unmatched:
            return ""
    named = [shorten_line(".".join(each), _NAME_CHARACTERS) for each in unmatched[:_MAX_NAMED]]
    more = [f"{len(unmatched) - _MAX_NAMED} more"] if len(unmatched) > _MAX_NAMED else []
    text = f"no tool matches {_join([*named, *more], 'and')} of spec.tools"
    if meant := list(dict.fromkeys(name for found in near.values() for name in found))[:_MAX_NAMED]:
        text += f"; did you mean {_join([shorten_line(name, _NAME_CHARACTERS) for name in meant], 'or')}?"
    elif unused is not None and not any(names.find_servers(server) for server, _ in unmatched):
        text += f"; {unused.describe_servers()}"
    return shorten_line(text, MAX_NOTE_CHARACTERS)


class _Unused:
    """Names that the pool allows and no pattern of the execution matches."""

    def __init__(self, names: ToolNames, *, pool: PoolTools, used: ToolPatterns) -> None:
        self._names, self._used = names, used
        self._allow, self._deny = ToolPatterns(pool.allow), ToolPatterns(pool.deny)

    def find_near(self, server: str, tool: str) -> list[str]:
        """Return the servers, or tools of a server that exists, that a pattern without a match may mean."""
        if not (found := self._names.find_servers(server)):
            servers = (each for each in self._list_servers() if not self._used.match_server(each))
            return find_close_names(server.removesuffix("*"), islice(servers, _MAX_COMPARED), limit=1)
        tools = islice(self._names.by_server[found[0]] or (), _MAX_COMPARED)
        unused = [each for each in tools if self._is_allowed(found[0], each) and not self._used.match(found[0], each)]
        return [f"{found[0]}.{each}" for each in find_close_names(tool.removesuffix("*"), unused, limit=1)]

    def describe_servers(self) -> str:
        """Return which servers a pattern could name."""
        servers = list(islice(self._list_servers(), _MAX_NAMED + 1))
        if not servers:
            return "this namespace has no ToolServer" if not self._names.by_server else "the pool allows no server"
        more = ["others"] if len(servers) > _MAX_NAMED else []
        are = "server here is" if len(servers) == 1 else "servers here are"
        return f"the {are} {_join([*servers[:_MAX_NAMED], *more], 'and')}"

    def _list_servers(self) -> Iterable[str]:
        return (
            each
            for each in sorted(self._names.by_server)
            if self._allow.match_server(each) and not self._deny.cover(f"{each}.*")
        )

    def _is_allowed(self, server: str, tool: str) -> bool:
        return self._allow.match(server, tool) and not self._deny.match(server, tool)


def _join(words: Sequence[str], last: str) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"
