"""Patterns that allow or deny tools: `github.create_issue`, `github.create_*`, `filesystem.*`, `*.*`."""

from collections.abc import Iterable
from typing import Final

TOOL_PATTERN: Final = r"^([A-Za-z0-9_-]+\*?|\*)\.([A-Za-z0-9_./-]+\*?|\*)$"
"""SERVER.TOOL. Either part may end with a star, which matches any ending."""


def matches(pattern: str, *, server: str, tool: str) -> bool:
    """Return whether the pattern matches the tool, given by its name on the server."""
    server_pattern, _, tool_pattern = pattern.partition(".")
    return name_matches(server_pattern, server) and name_matches(tool_pattern, tool)


def matches_any(patterns: Iterable[str], *, server: str, tool: str) -> bool:
    """Return whether any of the patterns matches the tool."""
    return any(matches(pattern, server=server, tool=tool) for pattern in patterns)


def may_use_server(patterns: Iterable[str], server: str) -> bool:
    """Return whether any pattern can match a tool of the server."""
    return any(name_matches(pattern.partition(".")[0], server) for pattern in patterns)


def is_within(pattern: str, bounds: Iterable[str]) -> bool:
    """Return whether one of the bounds matches everything that the pattern matches."""
    server, _, tool = pattern.partition(".")
    return any(
        name_matches(bound_server, server) and name_matches(bound_tool, tool)
        for bound_server, _, bound_tool in (bound.partition(".") for bound in bounds)
    )


def intersect(patterns: Iterable[str], bounds: Iterable[str]) -> list[str]:
    """Return patterns that together match what one of the patterns and one of the bounds match."""
    bounds = list(bounds)
    found: dict[str, None] = {}
    for pattern in patterns:
        if is_within(pattern, bounds):
            found[pattern] = None
            continue
        server, _, tool = pattern.partition(".")
        for bound_server, _, bound_tool in (bound.partition(".") for bound in bounds):
            parts = _intersect_names(server, bound_server), _intersect_names(tool, bound_tool)
            if None not in parts:
                found[f"{parts[0]}.{parts[1]}"] = None
    return list(found)


def _intersect_names(one: str, other: str) -> str | None:
    """Return the narrower of two patterns of a name, or None if no name matches both."""
    if not one.endswith("*"):
        return one if name_matches(other, one) else None
    if not other.endswith("*"):
        return other if name_matches(one, other) else None
    narrow, wide = sorted((one, other), key=len, reverse=True)
    return narrow if name_matches(wide, narrow[:-1]) else None


def name_matches(pattern: str, name: str) -> bool:
    """Return whether the name equals the pattern, or begins with it if the pattern ends with a star."""
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
