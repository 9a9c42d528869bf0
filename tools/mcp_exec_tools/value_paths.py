"""Paths of the parts of a value, as Python writes them: `result.rows[3].price`."""

from collections.abc import Sequence

_KEY_CHARACTERS = 60


def format_path(path: Sequence[str | int], root: str = "") -> str:
    """Return a path as text. Keys that are no names are in brackets, and long ones are cut."""
    parts = [root]
    for step in path:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        elif step.isidentifier() and len(step) <= _KEY_CHARACTERS:
            parts.append(f".{step}" if any(parts) else step)
        else:
            parts.append(f"[{step[:_KEY_CHARACTERS]!r}]")
    return "".join(parts)
