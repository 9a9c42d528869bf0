"""Lines of Python source: where each of them begins, and the source without its strings and comments.

The source may be invalid, so no tokenizer of Python reads it. One pass over the text takes linear time.
"""

import re
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
_NO_LINE_BREAK: Final = re.compile(r"[^\n]")


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
        token, end = match[0], match.end()
        parts.append(source[position : match.start()])
        if token in _ENDS:
            end = _find_end(source, token, end)
            starts.extend(["string"] * source.count("\n", match.start(), end))
        elif token in "([{":
            depth += 1
        elif token in ")]}":
            depth = max(0, depth - 1)
        elif token == "\n":
            starts.append("continued" if depth else "statement")
        elif token == "\\\n":
            starts.append("continued")
        is_literal = token in _ENDS or token[0] == "#"
        text = source[match.start() : end]
        parts.append(_NO_LINE_BREAK.sub(" ", text) if is_literal else text)
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
