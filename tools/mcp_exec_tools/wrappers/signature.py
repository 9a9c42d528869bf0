"""One-line signatures of tools, for readers of search results. They name parameters in their positional order."""

from collections.abc import Mapping
from typing import Any, Final

from mcp_exec_tools.schemas.parameters import Parameters, read_parameters
from mcp_exec_tools.schemas.reading import as_mapping, as_sequence, fits, merge_all_of, resolve_reference
from mcp_exec_tools.wrappers.text import format_value

_LONGEST: Final = 1000
"""Length of a signature after which parameters are shown without types, and after as many again, left out."""
_VALUES, _MEMBERS, _DEPTH, _TYPE = 6, 4, 3, 80
_SCALARS: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def format_signature(function: str, input_schema: Mapping[str, Any], output_schema: Mapping[str, Any] | None) -> str:
    """Return the call of a function as Python: `get_forecast(location: str, days: int = 7) -> list[dict]`.

    Names are those that code must write. An optional parameter without a default is shown with None, which the broker
    leaves out. What must be passed together is said by the type of the first parameter. `def ` before the signature and
    `: ...` behind it make a definition.
    """
    parameters = read_parameters(input_schema)
    end = f") -> {_format_type(output_schema, output_schema, 0)}" if output_schema else ")"
    pieces, size = [], len(function) + len(end)
    for name, schema in parameters.schemas.items():
        piece = _format_parameter(name, schema, parameters)
        if size + len(piece) > _LONGEST:
            piece = parameters.code_names[name] + ("" if name in parameters.required else "=None")
        size += len(piece) + 2
        if size > 2 * _LONGEST:
            pieces.append(f"**{parameters.choose_name('more')}")
            break
        pieces.append(piece)
    else:
        if parameters.extra is not None:
            kind = _format_type(parameters.extra, input_schema, 0)
            pieces.append(f"**{parameters.choose_name('extra')}: {kind}")
    return f"{function}({', '.join(pieces)}{end}"


def _format_parameter(name: str, schema: object, parameters: Parameters) -> str:
    kind = _format_type(schema, parameters.schema, 0)
    if parameters.rules and name == next(iter(parameters.schemas)):
        kind = f"Annotated[{kind}, {'; '.join(parameters.rules)!r}]"
    default = "" if name in parameters.required else f" = {_format_default(schema)}"
    return f"{parameters.code_names[name]}: {kind}{default}"


def _format_type(schema: object, root: Mapping[str, Any], depth: int) -> str:
    resolved, _ = resolve_reference(as_mapping(schema), root)
    about = merge_all_of(as_mapping(resolved), root)
    options = as_sequence(about.get("anyOf")) or as_sequence(about.get("oneOf"))
    listed = [_list_values(about)] if _list_values(about) else [_list_values(as_mapping(each)) for each in options]
    if listed and all(listed):
        return _format_literals([value for values in listed for value in values])
    kinds = about.get("type")
    if depth > _DEPTH:
        return "Any"
    if options and kinds is None:
        return _join([_format_type(option, root, depth + 1) for option in options[: _MEMBERS + 1]])
    members = [_format_kind(kind, about, root, depth) for kind in (kinds if isinstance(kinds, list) else [kinds])[:8]]
    return _join([*members, *(["None"] if about.get("nullable") is True else [])])


def _list_values(about: Mapping[str, Any]) -> list[Any]:
    """Return the only values that a schema allows, if it lists them."""
    return [about["const"]] if "const" in about else list(as_sequence(about.get("enum")))


def _format_kind(kind: object, about: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    if kind == "array":
        first = about.get("prefixItems", about.get("items"))
        items = first[: _MEMBERS + 1] if isinstance(first, list) else [first]
        item = _join([_format_type(each, root, depth + 1) for each in items])
        return "list" if item == "Any" else f"list[{item}]"
    if kind == "object":
        values = about.get("additionalProperties")
        if as_mapping(about.get("properties")) or not isinstance(values, Mapping):
            return "dict"
        value = _format_type(values, root, depth + 1)
        return "dict" if value == "Any" else f"dict[str, {value}]"
    return _SCALARS.get(kind, "Any") if isinstance(kind, str) else "Any"


def _format_literals(values: list[Any]) -> str:
    literals = [format_value(value) for value in values[:_VALUES]]
    text = ", ".join(each for each in literals if each is not None) + (", ..." if len(values) > _VALUES else "")
    if None not in literals and len(text) <= _TYPE and text.isprintable():
        return f"Literal[{text}]"
    return _join([_name_type(value) for value in values[:100]])


def _name_type(value: object) -> str:
    for kind in (bool, int, float, str, list, dict):
        if isinstance(value, kind):
            return kind.__name__
    return "None" if value is None else "Any"


def _format_default(parameter: object) -> str:
    about = as_mapping(parameter)
    default = about.get("default")
    if not fits(default, about):
        return "None"
    shown = format_value(default) or "None"
    return shown if len(shown) <= _TYPE and shown.isprintable() else "..."


def _join(types: list[str]) -> str:
    members = dict.fromkeys(types)
    return " | ".join(members) if 0 < len(members) <= _MEMBERS and "Any" not in members else "Any"
