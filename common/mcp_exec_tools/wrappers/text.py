"""Text of servers, made harmless: literals, comments and docstrings that nothing breaks out of.

What is written is what `ruff format` leaves as it is.
"""

import re
import textwrap
from typing import Final

WIDTH: Final = 120
"""Columns of a line."""

_BREAKS: Final = re.compile(r"\r\n|[\r\n\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


def format_literal(text: str) -> str:
    """The text as a Python literal of printable ASCII, in the quotes that need fewer escapes."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    return quote + "".join(_escape(character, quote) for character in text) + quote


def clean_line(text: str, limit: int) -> str:
    """One line of printable characters, at most so many; what is cut is marked."""
    line = " ".join("".join(_to_printable(character) for character in text[: limit * 8]).split())
    if len(line) <= limit:
        return line
    cut = line[: limit - 3]
    return (cut.rpartition(" ")[0] if " " in cut[limit // 2 :] else cut[:-1]).rstrip() + " ..."


def wrap_paragraphs(text: str, limit: int) -> list[str]:
    """Lines of printable characters, wrapped, indented against each other as they were; so many characters in all."""
    cut = text[:limit]
    lines = ["".join(_to_printable(each) for each in line.expandtabs(4)).rstrip() for line in _BREAKS.split(cut)]
    found: list[str] = []
    for line in "\n".join(lines).strip("\n").split("\n"):
        indent = " " * min(len(line) - len(line.lstrip()), 16) if found else ""
        wrapped = textwrap.wrap(
            line.strip(), WIDTH - 12, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
        )
        if wrapped or (found and found[-1]):
            found += wrapped or [""]
    if len(text) > limit:
        found.append("...")
    return _dedent(found)


def format_docstring(summary: str, *sections: list[str], indent: str = "") -> list[str]:
    """The lines of a docstring: a summary, and sections that stand apart. Text is taken as it comes."""
    first = clean_line(summary, 100).strip("\"'\\ ") or "A tool."
    body = [section for section in (_trim(each) for each in sections) if section]
    if not body and first.isascii():
        return [f'{indent}"""{_quote_line(first)}"""']
    lines = [f'{indent}"""{_quote_line(first)}']
    for section in body:
        lines += ["", *(indent + _quote_line(line) if line else "" for line in section)]
    return [*lines, f'{indent}"""']


def _quote_line(line: str) -> str:
    return line.replace("\\", "\\\\").replace('"""', "'''")


def _escape(character: str, quote: str) -> str:
    if character in (quote, "\\"):
        return "\\" + character
    if " " <= character <= "~":
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _to_printable(character: str) -> str:
    return character if character.isprintable() else " "


def _trim(lines: list[str]) -> list[str]:
    found = list(lines)
    while found and not found[-1].strip():
        found.pop()
    while found and not found[0].strip():
        found.pop(0)
    return _dedent(found)


def _dedent(lines: list[str]) -> list[str]:
    """The lines, the least indented of them at the margin, as a formatter would put them."""
    least = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return [line[least:].rstrip() for line in lines]
