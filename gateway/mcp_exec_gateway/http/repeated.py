"""Repeated names in queries and JSON objects."""

from collections.abc import Iterable


def find_repeated(names: Iterable[str]) -> str | None:
    """Return the first name that repeats an earlier one, or None. Takes linear time: clients choose the names."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
