"""Servers' texts in TypeScript: literals, keys and comments that no text can break out of."""

import json
from typing import Final

from mcp_exec_tools.wrappers.text import WIDTH, clean_line, trim_section

_RESERVED: Final = """
arguments await break case catch class const continue debugger default delete do else enum eval export extends false
finally for function if implements import in instanceof interface let new null package private protected public return
static super switch this throw true try typeof var void while with yield
"""
RESERVED: Final = frozenset(_RESERVED.split())
"""Words that no function and no parameter of a module can have as its name."""
THENABLE: Final = "then"
"""An export of this name would be called by `await import(...)`, as a promise's method."""
_MAX_SAFE: Final = 2**53 - 1
"""Largest integer that JavaScript reads unchanged."""


def declare_name(name: str) -> str:
    """Return the name under which a module can declare a function: `delete_` for `delete`."""
    return f"{name}_" if name in RESERVED or name == THENABLE else name


def list_exports(name: str) -> list[str]:
    """Return the names under which a module exports a function: `delete` too, which `servers.delete` may be."""
    declared = declare_name(name)
    return [declared] if name in (declared, THENABLE) else [declared, name]


def format_literal(text: str) -> str:
    """Return the text as a literal of printable ASCII."""
    return json.dumps(text).replace("\x7f", "\\u007f")


def format_value(value: object) -> str | None:
    """Return a JSON value as code, or None for a list, an object, and a number that JavaScript would change."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        return format_literal(value)
    if isinstance(value, int):
        return str(value) if abs(value) <= _MAX_SAFE else None
    try:
        return json.dumps(value, allow_nan=False) if isinstance(value, float) else None
    except ValueError:
        return None


def format_key(name: str) -> str:
    """Return a property's name, in quotes unless it is a plain one. Any word may be a property."""
    return name if name.isascii() and name.isidentifier() and len(name) <= WIDTH else format_literal(name)


def format_own_key(name: str) -> str:
    """Return the key of a property in an object's literal, where a plain `__proto__` would be no property."""
    return f"[{format_literal(name)}]" if name == "__proto__" else format_key(name)


def format_comment(summary: str, *sections: list[str], indent: str = "") -> list[str]:
    """Return the lines of a comment for documentation: a summary and separate sections. No text can end it."""
    first = clean_line(summary, 100) or "A tool."
    body = [section for section in (trim_section(section) for section in sections) if section]
    if not body:
        return [f"{indent}/** {escape_comment(first)} */"]
    lines = [f"{indent}/**", f"{indent} * {escape_comment(first)}"]
    for section in body:
        lines += [f"{indent} *", *(f"{indent} * {escape_comment(line)}".rstrip() for line in section)]
    return [*lines, f"{indent} */"]


def escape_comment(text: str) -> str:
    """Return a text that does not end a comment."""
    return text.replace("*/", "*\\/")
