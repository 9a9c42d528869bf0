"""Escapes of servers' texts: literals, comments and docstrings that no text can break out of.

The output is unchanged by `ruff format`.
"""

import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from unicodedata import combining, east_asian_width

WIDTH: Final = 120
"""Maximum number of columns of a line."""

_MAX_BITS: Final = 256
_BREAKS: Final = re.compile(r"\r\n|[\r\n\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


def format_literal(text: str) -> str:
    """Return the text as a Python literal of printable ASCII, in the quotes that need fewer escapes."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    return quote + "".join(_escape(character, quote) for character in text) + quote


def format_value(value: object) -> str | None:
    """Return a JSON value as Python writes it, or None for a list, an object, and a number that is not one in JSON."""
    if value is None or isinstance(value, str | bool):
        return repr(value)
    if isinstance(value, int):
        return repr(value) if value.bit_length() <= _MAX_BITS else None
    return repr(value) if isinstance(value, float) and math.isfinite(value) else None


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


def format_docstring(summary: str, *sections: list[str], indent: str = "") -> list[str]:
    """Return the lines of a docstring: a summary and separate sections. Any text is escaped."""
    first = clean_line(summary, 100).strip("\"'\\ ") or "A tool."
    body = [section for section in (_trim(section) for section in sections) if section]
    if not body and len(indent) + _measure(first) + 6 <= WIDTH:
        return [f'{indent}"""{_quote_line(first)}"""']
    lines = [f'{indent}"""{_quote_line(first)}']
    for section in body:
        lines += ["", *(indent + _quote_line(line) if line else "" for line in section)]
    return [*lines, f'{indent}"""']


def _measure(text: str) -> int:
    """Return the columns of a text: some characters have two, and some none."""
    if text.isascii():
        return len(text)
    widths = {"W": 2, "F": 2}
    return sum(widths.get(east_asian_width(each), 0 if combining(each) else 1) for each in text)


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
    trimmed = list(lines)
    while trimmed and not trimmed[-1].strip():
        trimmed.pop()
    while trimmed and not trimmed[0].strip():
        trimmed.pop(0)
    return _dedent(trimmed)


def _dedent(lines: list[str]) -> list[str]:
    """Remove the common indentation of the lines, as a formatter would."""
    least = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return [line[least:].rstrip() for line in lines]


_STEP: Final = "    "


@dataclass(frozen=True)
class Name:
    """Name, literal, or quoted name of a later definition. It cannot be broken into lines."""

    text: str

    def flat(self) -> str:
        """Return the expression in one line."""
        return self.text


@dataclass(frozen=True)
class Generic:
    """Generic type: `name[item, item]`."""

    name: str
    items: tuple["Expression", ...]

    def flat(self) -> str:
        """Return the expression in one line."""
        return f"{self.name}[{', '.join(item.flat() for item in self.items)}]"


@dataclass(frozen=True)
class Union:
    """Union type: `member | member`. No member is a union."""

    members: tuple["Expression", ...]

    def flat(self) -> str:
        """Return the expression in one line."""
        texts = [member.flat() for member in self.members]
        if any(text.startswith('"') for text in texts):
            return f"Union[{', '.join(texts)}]"
        return " | ".join(texts)


Expression = Name | Generic | Union

ANY: Final = Name("Any")
NONE: Final = Name("None")


def make_union(members: Sequence[Expression], *, most: int = 16) -> Expression:
    """Return the union of the members, without duplicates, with one Literal, and with None last.

    A union of more than `most` members is Any.
    """
    expressions: dict[Expression, None] = {}
    literals: dict[Expression, None] = {}
    for member in members:
        for option in member.members if isinstance(member, Union) else (member,):
            if isinstance(option, Generic) and option.name == "Literal":
                literals |= dict.fromkeys(option.items)
            expressions[Name("Literal") if isinstance(option, Generic) and option.name == "Literal" else option] = None
    if ANY in expressions or not expressions or len(expressions) > most:
        return ANY
    is_optional = NONE in expressions
    expressions.pop(NONE, None)
    options = [Generic("Literal", tuple(literals)) if option == Name("Literal") else option for option in expressions]
    options += [NONE] if is_optional else []
    return options[0] if len(options) == 1 else Union(tuple(options))


def format_expression(before: str, expression: Expression, after: str = "", *, indent: str = "") -> list[str]:
    """Return the lines of `before expression after`, broken if one line would be too long.

    A union that is too long for its line is put in parentheses. The caller passes none if these change the meaning.
    """
    flat = f"{indent}{before}{expression.flat()}{after}"
    if len(flat) <= WIDTH or isinstance(expression, Name):
        return [flat]
    if isinstance(expression, Generic):
        if len(expression.items) == 1:
            inner = format_expression("", expression.items[0], indent=indent + _STEP)
        else:
            inner = [
                line for item in expression.items for line in format_expression("", item, ",", indent=indent + _STEP)
            ]
        return [f"{indent}{before}{expression.name}[", *inner, f"{indent}]{after}"]
    if (text := expression.flat()).startswith("Union["):
        return format_expression(before, Generic("Union", expression.members), after, indent=indent)
    if len(indent + _STEP + text) <= WIDTH:
        return [f"{indent}{before}(", f"{indent}{_STEP}{text}", f"{indent}){after}"]
    first, *rest = (member.flat() for member in expression.members)
    lines = [f"{indent}{_STEP}{first}", *(f"{indent}{_STEP}| {member}" for member in rest)]
    return [f"{indent}{before}(", *lines, f"{indent}){after}"]
