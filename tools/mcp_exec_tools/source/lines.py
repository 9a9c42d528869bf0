"""Lines of Python source: where each of them begins, the source without its strings and comments, and fenced blocks.

The source may be invalid, so no tokenizer of Python reads it. One pass over the text takes linear time.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

LineStart = Literal["statement", "continued", "string"]
"""Where a line begins: at a statement, inside brackets or after a backslash, or inside a string."""

_TOKEN: Final = re.compile(r"#[^\n]*|\"\"\"|'''|[\"'()\[\]{}\n]|\\(?s:.)")
_ENDS: Final = {
    '"': re.compile(r'\\(?s:.)|["\n]'),
    "'": re.compile(r"\\(?s:.)|['\n]"),
    '"""': re.compile(r'\\(?s:.)|"""'),
    "'''": re.compile(r"\\(?s:.)|'''"),
}
_DEPTHS: Final = {**dict.fromkeys("([{", 1), **dict.fromkeys(")]}", -1)}
_NO_LINE_BREAK: Final = re.compile(r"[^\n]")
_PYTHON: Final = frozenset({"python", "python3", "py", "py3", "ipython", "ipython3", "tool_code"})
_LANGUAGE: Final = re.compile(r"\{?\.?([\w+#-]*)")
_MIN_MARKS: Final = 3


@dataclass(frozen=True, kw_only=True)
class ScannedSource:
    """What one pass over a source found."""

    starts: tuple[LineStart, ...]
    """Where each line begins."""
    code: str
    """The source with a space for each character of a string or comment, line breaks excepted."""


def scan(source: str) -> ScannedSource:
    """Scan a source whose line breaks are newlines."""
    starts: list[LineStart] = ["statement"]
    parts: list[str] = []
    depth = position = 0
    while (match := _TOKEN.search(source, position)) is not None:
        found, end = match[0], match.end()
        parts.append(source[position : match.start()])
        if found in _ENDS:
            end = _find_end(source, found, end)
            starts.extend(["string"] * source.count("\n", match.start(), end))
        elif found in _DEPTHS:
            depth = max(0, depth + _DEPTHS[found])
        elif found in ("\n", "\\\n"):
            starts.append("statement" if found == "\n" and not depth else "continued")
        text = source[match.start() : end]
        parts.append(_NO_LINE_BREAK.sub(" ", text) if found in _ENDS or found[0] == "#" else text)
        position = end
    parts.append(source[position:])
    return ScannedSource(starts=tuple(starts), code="".join(parts))


def _find_end(source: str, quotes: str, position: int) -> int:
    """Return the end of a string that begins at a position. One without an end lasts to its line's or the file's."""
    while (match := _ENDS[quotes].search(source, position)) is not None:
        if match[0] == "\n":
            return match.start()
        if match[0] == quotes:
            return match.end()
        position = match.end()
    return len(source)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block of Markdown, of backticks or tildes: the indexes of the line that opens it and of its end."""

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
