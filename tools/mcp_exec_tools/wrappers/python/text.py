"""Escapes of servers' texts in Python: literals and docstrings that no text can break out of, and the layout of types.

The output is unchanged by `ruff format`.
"""

import math
from dataclasses import dataclass
from typing import Final
from unicodedata import combining, east_asian_width

from mcp_exec_tools.wrappers.text import WIDTH, clean_line, trim_section

_MAX_BITS: Final = 256


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


def format_docstring(summary: str, *sections: list[str], indent: str = "") -> list[str]:
    """Return the lines of a docstring: a summary and separate sections. Any text is escaped."""
    first = clean_line(summary, 100).strip("\"'\\ ") or "A tool."
    body = [section for section in (trim_section(section) for section in sections) if section]
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
