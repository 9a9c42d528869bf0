"""Type definitions in TypeScript: interfaces and aliases."""

from collections.abc import Sequence
from typing import Final

from mcp_exec_tools.schemas.reading import as_mapping, fits
from mcp_exec_tools.wrappers.text import WIDTH, clean_line, wrap_paragraphs
from mcp_exec_tools.wrappers.types import (
    Field,
    Kind,
    ListOf,
    Literals,
    MapOf,
    Reference,
    Scalar,
    TypeDefinition,
    UnionOf,
)
from mcp_exec_tools.wrappers.typescript.text import (
    escape_comment,
    format_comment,
    format_key,
    format_value,
)

BUILTINS: Final = frozenset({"Promise", "Record"})
"""Names of types that the declarations use."""
_SCALARS: Final = {"integer": "number"}
_DESCRIPTION: Final = 400
_DEFAULT: Final = 80
_MAX_DESCRIBED: Final = 100
"""Fields of one type with a comment."""


def format_kind(kind: Kind) -> str:
    """Return a type in one line."""
    match kind:
        case Scalar(name):
            return _SCALARS.get(name, name)
        case ListOf(item):
            return format_list(format_kind(item))
        case MapOf(value):
            return f"Record<string, {format_kind(value)}>"
        case Reference(name, _):
            return name
    return " | ".join(_list_members(kind))


def format_list(item: str) -> str:
    """Return the type of a list."""
    return f"({item})[]" if " | " in item else f"{item}[]"


def _list_members(kind: Kind) -> Sequence[str]:
    """Return the members of a union, each once, and any other type as its only member."""
    match kind:
        case Literals(values):
            return list(dict.fromkeys(format_value(value) or "number" for _, value in values))
        case UnionOf(members):
            return list(dict.fromkeys(text for member in members for text in _list_members(member)))
    return [format_kind(kind)]


def format_type(before: str, kind: Kind, *, indent: str = "") -> list[str]:
    """Return the lines of `before type;`, with a union that is too long for one line broken before its members."""
    line = f"{indent}{before}{format_kind(kind)};"
    members = _list_members(kind)
    if len(line) <= WIDTH or len(members) == 1:
        return [line]
    *first, last = (f"{indent}  | {member}" for member in members)
    return [f"{indent}{before.rstrip()}", *first, f"{last};"]


def format_definition(definition: TypeDefinition) -> list[str]:
    """Return the definition's source."""
    lines = format_comment(definition.doc) if definition.doc else []
    if definition.alias is not None:
        return [*lines, *format_type(f"export type {definition.name} = ", definition.alias)]
    if not definition.fields and not definition.is_open:
        # an empty interface would accept any value
        return [*lines, f"export type {definition.name} = Record<string, never>;"]
    lines.append(f"export interface {definition.name} {{")
    for number, field in enumerate(definition.fields):
        if number < _MAX_DESCRIBED:
            lines += _describe(field)
        before = f"{format_key(field.key)}{'' if field.is_required else '?'}: "
        lines += format_type(before, field.kind, indent="  ")
    return [*lines, *(["  [key: string]: any;"] if definition.is_open else []), "}"]


def _describe(field: Field) -> list[str]:
    """Return the comment of a field: its description and its default."""
    about = as_mapping(field.schema)
    description = about.get("description")
    text = clean_line(description, _DESCRIPTION) if isinstance(description, str) else ""
    default = format_value(about.get("default")) if "default" in about and fits(about["default"], about) else None
    if default is not None and len(default) <= _DEFAULT:
        text = f"{text} (default {default})".lstrip()
    if not text:
        return []
    first, *rest = wrap_paragraphs(text, _DESCRIPTION + _DEFAULT + 20)
    if not rest:
        return [f"  /** {escape_comment(first)} */"]
    return ["  /**", *(f"   * {escape_comment(line)}" for line in (first, *rest)), "   */"]
