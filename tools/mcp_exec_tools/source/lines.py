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
_DEPTHS: Final = {**dict.fromkeys("([{", 1), **dict.fromkeys(")]}", -1)}
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
