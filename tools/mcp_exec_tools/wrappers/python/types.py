"""Type definitions in Python: TypedDicts and aliases."""

import keyword
import re
from collections.abc import Collection, Iterable
from typing import Final

from mcp_exec_tools.wrappers.python.text import (
    Expression,
    Generic,
    Name,
    Union,
    format_docstring,
    format_expression,
    format_literal,
)
from mcp_exec_tools.wrappers.types import Kind, ListOf, Literals, MapOf, Reference, Scalar, TypeDefinition, UnionOf

BUILTINS: Final = frozenset({"str", "int", "float", "bool", "list", "dict"})
"""Built-in names in generated types. A tool may have any of these names."""
TYPING: Final = frozenset({"Any", "Literal", "NotRequired", "TypeAlias", "TypedDict", "Union", "Unpack"})

_SAFE: Final = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]{0,59}")
_BUILTIN_SCALARS: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
_SCALARS: Final = {"any": "Any", "null": "None"}


def build_expression(kind: Kind, prefix: str) -> Expression:
    """Return a type as Python. `prefix` qualifies built-in names if a tool has one of them."""
    match kind:
        case Scalar(name):
            return Name(_SCALARS[name] if name in _SCALARS else prefix + _BUILTIN_SCALARS[name])
        case Literals(values):
            return Generic("Literal", tuple(Name(_format_value(value)) for _, value in values))
        case ListOf(item):
            return Generic(f"{prefix}list", (build_expression(item, prefix),))
        case MapOf(value):
            return Generic(f"{prefix}dict", (Name(f"{prefix}str"), build_expression(value, prefix)))
        case Reference(name, is_later):
            return Name(f'"{name}"' if is_later else name)
        case UnionOf(members):
            return Union(tuple(build_expression(member, prefix) for member in members))


def _format_value(value: str | int | bool) -> str:
    return format_literal(value) if isinstance(value, str) else str(value)


def format_definition(
    definition: TypeDefinition, taken: Collection[str], *, prefix: str, stub: bool = False
) -> list[str]:
    """Return the definition's source. `taken` are names with another meaning in the module."""
    if definition.alias is not None:
        return format_expression(f"{definition.name}: TypeAlias = ", build_expression(definition.alias, prefix))
    keys = [field.key for field in definition.fields]
    if all(_SAFE.fullmatch(key) and not keyword.iskeyword(key) and key not in taken for key in keys):
        return _format_class(definition, prefix, stub=stub)
    lines = [f"{definition.name} = TypedDict(", f"    {format_literal(definition.name)},", "    {"]
    for key, kind in zip(keys, _list_types(definition, prefix), strict=True):
        lines += format_expression(f"{format_literal(key)}: ", kind, ",", indent=" " * 8)
    return [*lines, "    },", ")"]


def _format_class(definition: TypeDefinition, prefix: str, *, stub: bool) -> list[str]:
    lines = [f"class {definition.name}(TypedDict):"]
    if stub and not definition.fields:
        return [f"class {definition.name}(TypedDict): ..."]
    if not stub:
        lines += format_docstring(definition.doc, indent="    ") + ([""] if definition.fields else [])
    for field, kind in zip(definition.fields, _list_types(definition, prefix), strict=True):
        lines += format_expression(f"{field.key}: ", kind, indent="    ")
    return lines


def _list_types(definition: TypeDefinition, prefix: str) -> list[Expression]:
    """Return the types of an object's fields."""
    kinds = [(build_expression(field.kind, prefix), field.is_required) for field in definition.fields]
    return [kind if is_required else Generic("NotRequired", (kind,)) for kind, is_required in kinds]


def find_imports(definitions: Iterable[TypeDefinition], prefix: str) -> set[str]:
    """Return the names that the definitions import from `typing`, and "builtins" if they need that module."""
    imports: set[str] = set()
    for definition in definitions:
        if definition.alias is not None:
            imports |= {"TypeAlias"} | _find_names(build_expression(definition.alias, prefix))
        else:
            imports |= {"TypedDict"}.union(*map(_find_names, _list_types(definition, prefix)))
    return imports


def _find_names(kind: Expression) -> set[str]:
    if isinstance(kind, Name):
        return {kind.text} & TYPING | ({"builtins"} if kind.text.startswith("builtins.") else set())
    if isinstance(kind, Union):
        own = {"Union"} if kind.flat().startswith("Union[") else set()
        return own.union(*map(_find_names, kind.members))
    own = {"builtins"} if kind.name.startswith("builtins.") else {kind.name} & TYPING
    return own.union(*map(_find_names, kind.items))
