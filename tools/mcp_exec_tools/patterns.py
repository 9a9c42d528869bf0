"""Patterns of tools, `SERVER.TOOL`. Either part may end with a star, which matches any ending.

`matches_any` is for one tool. For many, patterns are compiled: each lookup then takes at most as many steps as the name
has characters, however many patterns there are.
"""

from collections.abc import Iterable
from itertools import chain
from typing import Final

TOOL_PATTERN: Final = r"^([A-Za-z0-9_-]+\*?|\*)\.([A-Za-z0-9_./-]+\*?|\*)$"


class NamePatterns:
    """Compiled patterns of names."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = frozenset(patterns)
        self._lengths = sorted({len(pattern) - 1 for pattern in self._patterns if pattern.endswith("*")})

    def find(self, name: str) -> list[str]:
        """Return the patterns that match a name, the shortest last."""
        found = []
        for length in self._lengths:
            if length > len(name):
                break
            if (pattern := name[:length] + "*") in self._patterns:
                found.append(pattern)
        if not name.endswith("*") and name in self._patterns:
            found.append(name)
        return found[::-1]

    def match(self, name: str) -> bool:
        """Return whether a pattern matches the name. Of a pattern: whether one matches everything that it matches."""
        return bool(self.find(name))


class ToolPatterns:
    """Compiled patterns of tools."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.by_server: dict[str, list[str]] = {}
        """Patterns of tools by the pattern of their servers."""
        for pattern in patterns:
            server, _, tool = pattern.partition(".")
            self.by_server.setdefault(server, []).append(tool)
        self._servers = NamePatterns(self.by_server)
        self._of_servers: dict[tuple[str, ...], NamePatterns] = {}

    def match_server(self, server: str) -> bool:
        """Return whether a pattern can match a tool of the server."""
        return self._servers.match(server)

    def match(self, server: str, tool: str) -> bool:
        """Return whether a pattern matches the tool."""
        found = tuple(self._servers.find(server))
        if not found:
            return False
        tools = self._of_servers.get(found)
        if tools is None:
            # at most two for each pattern of servers: with and without an exact one
            tools = NamePatterns(chain.from_iterable(self.by_server[each] for each in found))
            self._of_servers[found] = tools
        return tools.match(tool)

    def cover(self, pattern: str) -> bool:
        """Return whether one of the patterns matches everything that the given pattern matches."""
        server, _, tool = pattern.partition(".")
        return self.match(server, tool)


class TooManyPatterns(ValueError):
    """An intersection has more patterns than allowed."""


def intersect(patterns: Iterable[str], bounds: ToolPatterns, *, limit: int) -> list[str]:
    """Return patterns that together match what one of the patterns and one of the bounds match.

    Raises TooManyPatterns if they are more than `limit`.
    """
    found: dict[str, None] = {}
    for pattern in patterns:
        if bounds.cover(pattern):
            found[pattern] = None
            continue
        server, _, tool = pattern.partition(".")
        for bound_server, bound_tools in bounds.by_server.items():
            if (both_servers := _intersect_names(server, bound_server)) is None:
                continue
            both_tools = (_intersect_names(tool, bound_tool) for bound_tool in bound_tools)
            found.update((f"{both_servers}.{each}", None) for each in both_tools if each is not None)
            if len(found) > limit:
                break
        if len(found) > limit:
            raise TooManyPatterns(f"together they are more than {limit} patterns")
    return list(found)


def _intersect_names(one: str, other: str) -> str | None:
    """Return the narrower of two patterns of a name, or None if no name matches both."""
    if not one.endswith("*"):
        return one if name_matches(other, one) else None
    if not other.endswith("*"):
        return other if name_matches(one, other) else None
    narrow, wide = sorted((one, other), key=len, reverse=True)
    return narrow if name_matches(wide, narrow[:-1]) else None


def matches_any(patterns: Iterable[str], *, server: str, tool: str) -> bool:
    """Return whether any of the patterns matches the tool."""
    return any(matches(pattern, server=server, tool=tool) for pattern in patterns)


def matches(pattern: str, *, server: str, tool: str) -> bool:
    """Return whether the pattern matches the tool, given by its name on the server."""
    server_pattern, _, tool_pattern = pattern.partition(".")
    return name_matches(server_pattern, server) and name_matches(tool_pattern, tool)


def name_matches(pattern: str, name: str) -> bool:
    """Return whether the name equals the pattern, or begins with it if the pattern ends with a star."""
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
