"""Calls of functions in one line of Python."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from mcp_exec_tools.schemas.parameters import Parameters, read_parameters
from mcp_exec_tools.wrappers.dialect import LONGEST, Dialect
from mcp_exec_tools.wrappers.python.text import format_value


class _Python(Dialect):
    any: ClassVar = "Any"
    null: ClassVar = "None"
    scalars: ClassVar = {
        "string": "str",
        "integer": "int",
        "number": "float",
        "boolean": "bool",
        "null": "None",
        "array": "list",
        "object": "dict",
    }

    def format_list(self, item: str) -> str:
        return f"list[{item}]"

    def format_map(self, value: str) -> str:
        return f"dict[str, {value}]"

    def format_value(self, value: object) -> str | None:
        return format_value(value)

    def format_literals(self, values: Sequence[str], *, is_cut: bool) -> str:
        return f"Literal[{', '.join(values)}{', ...' if is_cut else ''}]"


_PYTHON: Final = _Python()


def format_signature(function: str, input_schema: Mapping[str, Any], output_schema: Mapping[str, Any] | None) -> str:
    """Return the call of a function as Python: `get_forecast(location: str, days: int = 7) -> list[dict]`.

    Names are those that code must write. An optional parameter without a default is shown with None, which the broker
    leaves out. What must be passed together is said by the type of the first parameter. `def ` before the signature and
    `: ...` behind it make a definition.
    """
    parameters = read_parameters(input_schema)
    end = f") -> {_PYTHON.format_type(output_schema, output_schema)}" if output_schema else ")"
    pieces, size = [], len(function) + len(end)
    for name, schema in parameters.schemas.items():
        piece = _format_parameter(name, schema, parameters)
        if size + len(piece) > LONGEST:
            piece = parameters.code_names[name] + ("" if name in parameters.required else "=None")
        size += len(piece) + 2
        if size > 2 * LONGEST:
            pieces.append(f"**{parameters.choose_name('more')}")
            break
        pieces.append(piece)
    else:
        if parameters.extra is not None:
            kind = _PYTHON.format_type(parameters.extra, input_schema)
            pieces.append(f"**{parameters.choose_name('extra')}: {kind}")
    return f"{function}({', '.join(pieces)}{end}"


def _format_parameter(name: str, schema: object, parameters: Parameters) -> str:
    kind = _PYTHON.format_type(schema, parameters.schema)
    if parameters.rules and name == next(iter(parameters.schemas)):
        kind = f"Annotated[{kind}, {'; '.join(parameters.rules)!r}]"
    default = "" if name in parameters.required else f" = {_PYTHON.format_default(schema)}"
    return f"{parameters.code_names[name]}: {kind}{default}"
