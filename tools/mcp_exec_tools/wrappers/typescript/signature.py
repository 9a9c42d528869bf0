"""Calls of functions in one line of TypeScript."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from mcp_exec_tools.names import parameter_names
from mcp_exec_tools.schemas.parameters import Parameters, read_parameters
from mcp_exec_tools.wrappers.dialect import LONGEST, Dialect
from mcp_exec_tools.wrappers.typescript.text import RESERVED, escape_comment, format_value
from mcp_exec_tools.wrappers.typescript.types import format_list


class _TypeScript(Dialect):
    any: ClassVar = "any"
    null: ClassVar = "null"
    scalars: ClassVar = {
        "string": "string",
        "integer": "number",
        "number": "number",
        "boolean": "boolean",
        "null": "null",
        "array": "any[]",
        "object": "object",
    }

    def format_list(self, item: str) -> str:
        return format_list(item)

    def format_map(self, value: str) -> str:
        return f"Record<string, {value}>"

    def format_value(self, value: object) -> str | None:
        return format_value(value)

    def format_literals(self, values: Sequence[str], *, is_cut: bool) -> str:
        return f"{' | '.join(values)}{' /* and more */' if is_cut else ''}"


_TYPESCRIPT: Final = _TypeScript()


def format_signature(function: str, input_schema: Mapping[str, Any], output_schema: Mapping[str, Any] | None) -> str:
    """Return the call of a function as TypeScript: `getForecast(place: string, days: number = 7): Promise<object[]>`.

    The parameters are in their positional order, and an object with their names does the same. Their names are those
    that code must write. A tool that accepts others too is shown with such an object. What must be passed together is
    said in a comment at the first parameter. `async function ` before the signature and a body behind it make a
    definition.
    """
    parameters = read_parameters(input_schema)
    names = parameter_names(parameters.schemas, reserved=RESERVED)
    end = f"): Promise<{_TYPESCRIPT.format_type(output_schema, output_schema)}>" if output_schema else ")"
    is_object = parameters.extra is not None
    pieces, size = [], len(function) + len(end)
    for name, schema in parameters.schemas.items():
        piece = _format_parameter(name, schema, parameters, names, is_object=is_object)
        if size + len(piece) > LONGEST:
            piece = names[name] + ("" if name in parameters.required else "?")
        size += len(piece) + 2
        if size > 2 * LONGEST:
            pieces.append("more?" if is_object else "...more")
            break
        pieces.append(piece)
    if not is_object:
        return f"{function}({', '.join(pieces)}{end}"
    extra = f"Record<string, {_TYPESCRIPT.format_type(parameters.extra, input_schema)}>"
    own = f"{{ {'; '.join(pieces)} }} & " if pieces else ""
    return f"{function}(input: {own}{extra}{end}"


def _format_parameter(
    name: str, schema: object, parameters: Parameters, names: Mapping[str, str], *, is_object: bool
) -> str:
    kind = _TYPESCRIPT.format_type(schema, parameters.schema)
    if name == next(iter(parameters.schemas)) and (rules := parameters.describe_rules(names, show=json.dumps)):
        kind = f"{kind} /* {escape_comment('; '.join(rules))} */"
    if name in parameters.required:
        return f"{names[name]}: {kind}"
    default = _TYPESCRIPT.format_default(schema)
    if default is None or default == "..." or is_object:
        return f"{names[name]}?: {kind}"
    return f"{names[name]}: {kind} = {default}"
