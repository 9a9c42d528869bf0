"""Markdown that generated pages share: tables, and text that stands in a cell."""

from collections.abc import Iterable, Sequence
from typing import Final

GENERATED: Final = "<!-- Generated from the types by `make generate`. Do not edit. -->\n"


def build_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Build a table. Cells may have several lines of text, which become one."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(map(format_cell, row))} |" for row in rows]
    return "\n".join(lines) + "\n"


def format_cell(text: str) -> str:
    """Return a text as a cell: on one line, without what ends a cell or begins an element of HTML."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def format_code(text: str) -> str:
    """Return a text as code inside a line."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"
