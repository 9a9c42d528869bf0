"""Patterns that allow or deny tools: `github.create_issue`, `github.create_*`, `filesystem.*`, `*.*`."""

from collections.abc import Iterable
from typing import Final

TOOL_PATTERN: Final = r"^([A-Za-z0-9_-]+\*?|\*)\.([A-Za-z0-9_./-]+\*?|\*)$"
"""SERVER.TOOL, either of which may end with a star for all that begins so."""


def matches(pattern: str, *, server: str, tool: str) -> bool:
    """Whether the pattern speaks of the tool, given by its name at the server."""
    wanted_server, _, wanted_tool = pattern.partition(".")
    return name_matches(wanted_server, server) and name_matches(wanted_tool, tool)


def matches_any(patterns: Iterable[str], *, server: str, tool: str) -> bool:
    """Whether any of the patterns speaks of the tool."""
    return any(matches(pattern, server=server, tool=tool) for pattern in patterns)


def may_use_server(patterns: Iterable[str], server: str) -> bool:
    """Whether any of the patterns speaks of any tool of the server."""
    return any(name_matches(pattern.partition(".")[0], server) for pattern in patterns)


def is_within(pattern: str, bounds: Iterable[str]) -> bool:
    """Whether one of the bounds speaks of all that the pattern speaks of."""
    server, _, tool = pattern.partition(".")
    return any(
        name_matches(bound_server, server) and name_matches(bound_tool, tool)
        for bound_server, _, bound_tool in (bound.partition(".") for bound in bounds)
    )


def name_matches(pattern: str, name: str) -> bool:
    """Whether a name is the pattern, or begins as one does that ends with a star."""
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
