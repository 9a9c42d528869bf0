"""Bounded texts with one cut format, for the sandbox, the operator and the broker alike."""

from typing import Literal


def shorten(text: str, limit: int) -> str:
    """Return `text`, or if it has more than `limit` characters, its head and tail around a cut marker.

    Head and tail have `limit` characters together; the marker comes on top of them.
    """
    if len(text) <= limit:
        return text
    half = max(0, limit // 2)
    return f"{text[:half]}{cut_marker(len(text) - 2 * half)}{text[len(text) - half :]}"


def cut_marker(count: int, unit: Literal["characters", "bytes"] = "characters") -> str:
    """Return the line that stands in place of the `count` characters or bytes that were cut."""
    return f"\n[... {count} {unit} cut ...]\n"
