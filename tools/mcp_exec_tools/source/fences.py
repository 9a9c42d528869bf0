"""Fenced code blocks of Markdown, with backticks or tildes."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from mcp_exec_tools.source.lines import LineStart

_PYTHON: Final = frozenset({"python", "python3", "py", "py3", "ipython", "ipython3", "tool_code"})
_LANGUAGE: Final = re.compile(r"\{?\.?([\w+#-]*)")
_MIN_MARKS: Final = 3


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block: the indexes of its opening line and of the line that closes it."""

    opening: int
    closing: int
    """The number of lines if the block is not closed."""
    language: str
    """First word after the opening fence, in lower case."""
    is_closed: bool

    @property
    def is_python(self) -> bool:
        """Whether the fence names Python."""
        return self.language in _PYTHON


def find_blocks(lines: Sequence[str], starts: Sequence[LineStart] | None = None) -> Iterator[Block]:
    """Yield the blocks. With `starts`, lines that begin inside a string of Python are no fences."""
    opening, marks, language = -1, "", ""
    for number, line in enumerate(lines):
        if starts is not None and starts[number] == "string":
            continue
        found = _read_fence(line)
        if found is None:
            continue
        found_marks, info = found
        if opening < 0:
            matched = _LANGUAGE.match(info)
            opening, marks, language = number, found_marks, matched[1].lower() if matched else ""
        elif found_marks.startswith(marks) and not info:
            yield Block(opening=opening, closing=number, language=language, is_closed=True)
            opening = -1
    if opening >= 0:
        yield Block(opening=opening, closing=len(lines), language=language, is_closed=False)


def join_python_blocks(text: str) -> str | None:
    """Return the Python of a text's closed blocks, or None if it has none."""
    lines = text.splitlines()
    found = ("\n".join(lines[block.opening + 1 : block.closing]).strip("\n") for block in _find_python(lines))
    return "\n\n".join(code for code in found if code.strip()) or None


def _find_python(lines: Sequence[str]) -> Iterator[Block]:
    return (block for block in find_blocks(lines) if block.is_python and block.is_closed)


def _read_fence(line: str) -> tuple[str, str] | None:
    """Return the marks of a fence and the text after them, or None if the line is none."""
    text = line.strip()
    if not text.startswith(("```", "~~~")):
        return None
    info = text.lstrip(text[0])
    marks = text[: len(text) - len(info)]
    # An inline code span is no fence.
    return None if len(marks) < _MIN_MARKS or "`" in info else (marks, info.strip())
