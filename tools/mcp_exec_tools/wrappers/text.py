"""Servers' texts as bounded lines of printable characters, for the comments of generated files."""

import re
import textwrap
from typing import Final

WIDTH: Final = 120
"""Maximum number of columns of a line."""
_DESCRIPTION: Final = 4000
_SENTENCE: Final = re.compile(r"[^\r\n]{1,99}?(?:[.!?](?=\s)|(?=[\r\n]|\Z))")
_BREAKS: Final = re.compile(r"\r\n|[\r\n\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


def split_description(description: str, function: str) -> tuple[str, list[str]]:
    """Split a description into its first line or sentence, as a summary, and the rest."""
    text = description[: _DESCRIPTION + 1].strip()
    lines = wrap_paragraphs(text, _DESCRIPTION)
    if not lines or not lines[0].strip():
        return f"Call {function}.", []
    if match := _SENTENCE.match(text):
        return match[0], wrap_paragraphs(text[match.end() :].strip(), _DESCRIPTION)
    return clean_line(" ".join(lines), 100), lines


def clean_line(text: str, limit: int) -> str:
    """Return the text as one line of at most `limit` printable characters. A cut line ends with an ellipsis."""
    line = " ".join("".join(_to_printable(character) for character in text[: limit * 8]).split())
    if len(line) <= limit:
        return line
    cut = line[: limit - 3]
    return (cut.rpartition(" ")[0] if " " in cut[limit // 2 :] else cut[:-1]).rstrip() + " ..."


def wrap_paragraphs(text: str, limit: int) -> list[str]:
    """Wrap the first `limit` characters of the text to lines of printable characters. Relative indentation is kept."""
    cut = text[:limit]
    lines = [
        "".join(_to_printable(character) for character in line.expandtabs(4)).rstrip() for line in _BREAKS.split(cut)
    ]
    paragraph_lines: list[str] = []
    for line in "\n".join(lines).strip("\n").split("\n"):
        indent = " " * min(len(line) - len(line.lstrip()), 16) if paragraph_lines else ""
        wrapped = textwrap.wrap(
            line.strip(), WIDTH - 12, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
        )
        if wrapped or (paragraph_lines and paragraph_lines[-1]):
            paragraph_lines += wrapped or [""]
    if len(text) > limit:
        paragraph_lines.append("...")
    return _dedent(paragraph_lines)


def trim_section(lines: list[str]) -> list[str]:
    """Return the lines without empty ones at the ends and without their common indentation."""
    trimmed = list(lines)
    while trimmed and not trimmed[-1].strip():
        trimmed.pop()
    while trimmed and not trimmed[0].strip():
        trimmed.pop(0)
    return _dedent(trimmed)


def _to_printable(character: str) -> str:
    return character if character.isprintable() else " "


def _dedent(lines: list[str]) -> list[str]:
    """Remove the common indentation of the lines, as a formatter would."""
    least = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return [line[least:].rstrip() for line in lines]
