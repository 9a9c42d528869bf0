"""The parameters that the input schema of a tool names, as error messages and approvals show them."""

from typing import Final

from mcp_exec_tools.catalog import Tool
from mcp_exec_tools.schemas.parameters import Parameters, read_parameters

_MAX_TEXT: Final = 300
_MAX_PARAMETERS: Final = 200


def list_parameters(tool: Tool) -> list[str]:
    """Return the tool's parameters, required ones first and marked by a star."""
    return mark_names(read_parameters(tool.input_schema))


def mark_names(parameters: Parameters) -> list[str]:
    """Return the parameters, required ones first and marked by a star."""
    needed = parameters.required
    first = [f"{name[:_MAX_TEXT]}*" for name in needed]
    rest = [name[:_MAX_TEXT] for name in parameters.schemas if name not in needed]
    return (first + rest)[:_MAX_PARAMETERS]
