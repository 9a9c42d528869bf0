"""One-line signatures of tools, for readers of search results. They name parameters in their positional order."""

from collections.abc import Mapping
from typing import Any, Final

from mcp_exec_tools.wrappers.schemas import (
    as_mapping,
    as_sequence,
    list_parameters,
    list_required_arguments,
    merge_all_of,
    resolve_reference,
)
from mcp_exec_tools.wrappers.text import clean_line

_LONGEST: Final = 500
"""Maximum length of a signature in characters."""
_PARAMETERS, _VALUES, _MEMBERS, _DEPTH, _TYPE = 40, 6, 4, 3, 80
_SCALARS: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def format_signature(function: str, input_schema: Mapping[str, Any], output_schema: Mapping[str, Any] | None) -> str:
    """Return the call of a function: `get_forecast(location: str, days: int = 7) -> list[dict]`.

    An optional parameter without a default is shown with None, which the broker leaves out. A signature that is too
    long ends with an ellipsis.
    """
    resolved, _ = resolve_reference(input_schema, input_schema)
    schema = merge_all_of(as_mapping(resolved), input_schema)
    parameters, needed = list_parameters(schema), list_required_arguments(schema)
    end = f") -> {_format_type(output_schema, output_schema, 0)}" if output_schema else ")"
    text = ""
    for number, (name, parameter) in enumerate(parameters.items()):
        piece = f"{', ' if text else ''}{clean_line(name, 60)}: {_format_type(parameter, input_schema, 0)}"
        piece += "" if name in needed else f" = {_format_default(parameter)}"
        if number == _PARAMETERS or len(function) + len(text) + len(piece) + len(end) > _LONGEST:
            text += ", ..." if text else "..."
            break
        text += piece
    return f"{function}({text}{end}"


def _format_type(schema: object, root: Mapping[str, Any], depth: int) -> str:
    resolved, _ = resolve_reference(as_mapping(schema), root)
    about = merge_all_of(as_mapping(resolved), root)
    values = [about["const"]] if "const" in about else about.get("enum")
    if isinstance(values, list) and values:
        return _format_literals(values)
    options = as_sequence(about.get("anyOf")) or as_sequence(about.get("oneOf"))
    kinds = about.get("type")
    if depth > _DEPTH:
        return "Any"
    if options and kinds is None:
        return _join([_format_type(option, root, depth + 1) for option in options[: _MEMBERS + 1]])
    return _join([_format_kind(kind, about, root, depth) for kind in (kinds if isinstance(kinds, list) else [kinds])])


def _format_kind(kind: object, about: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    if kind == "array":
        item = _format_type(about.get("items"), root, depth + 1)
        return "list" if item == "Any" else f"list[{item}]"
    if kind == "object":
        return "dict"
    return _SCALARS.get(kind, "Any") if isinstance(kind, str) else "Any"


def _format_literals(values: list[Any]) -> str:
    literals = [repr(value) for value in values[:_VALUES] if value is None or isinstance(value, str | int | float)]
    text = ", ".join(literals) + (", ..." if len(values) > _VALUES else "")
    return f"Literal[{text}]" if literals and len(text) <= _TYPE and text.isprintable() else "str"


def _format_default(parameter: object) -> str:
    default = as_mapping(parameter).get("default")
    shown = repr(default) if isinstance(default, str | int | float) else "None"
    return shown if len(shown) <= _TYPE else "..."


def _join(types: list[str]) -> str:
    members = dict.fromkeys(types)
    return " | ".join(members) if 0 < len(members) <= _MEMBERS and "Any" not in members else "Any"
