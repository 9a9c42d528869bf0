"""Functions with which code calls tools."""

from collections.abc import Mapping
from typing import Any

from mcp_exec_sandbox.tools import tool_session
from mcp_exec_sandbox.tools.arguments import bind_values, merge_arguments, to_mapping
from mcp_exec_sandbox.tools.errors import ToolError
from mcp_exec_sandbox.tools.known_tools import find_added_function, find_parameters, find_result_format
from mcp_exec_sandbox.tools.results import cast_result
from mcp_exec_tools.result_formats import read_result

_Arguments = Mapping[str, Any]


async def call_mcp_tool(
    tool_name: str,
    input: Any = None,
    type: Any = None,
    *values: Any,
    timeout: float | None = None,  # noqa: ASYNC109 - the tool's time limit, which the broker enforces
    **arguments: Any,
) -> Any:
    """Call an MCP tool and return its result.

    Args:
        tool_name: `github.create_issue` or `mcp__github__create_issue`; snake_case and camelCase both work.
        input: the arguments as a dict. Keywords are arguments too, except `input`, `type` and `timeout`. If it is no
            dict, it is the first argument itself, and `type` and `values` are the next ones, in the tool's order.
        type: the type of the result: a TypedDict, a dataclass or a list of those. Missing fields are an error.
        values: further arguments, if `input` is the first one.
        timeout: maximum duration of the call in seconds, within the execution's own limit.

    Returns:
        Structured content, else parsed JSON, else text. A ToolResult if the tool sent files.

    Raises:
        ToolError: the tool failed, or the arguments are wrong. Its subclasses ToolDenied, ToolTimeout and
            ToolProtocolError are the other kinds of failure.
    """
    if not isinstance(tool_name, str):
        raise ToolError("the name of a tool is a string such as 'github.create_issue'", reason="NoSuchTool")
    positional = to_mapping(input) if not values else None
    if positional is None:
        positional, type = _bind(tool_name, (input, type, *values))
    if duplicates := positional.keys() & arguments.keys():
        raise ToolError(f"the parameter {min(duplicates)} is given twice", tool=tool_name, reason="InvalidArguments")
    value = await _call(tool_name, {**positional, **arguments}, timeout)
    return value if type is None else cast_result(value, type, tool=tool_name)


def _bind(tool_name: str, values: tuple[Any, ...]) -> tuple[_Arguments, Any]:
    """Return positional arguments by name, and the type, which is the last value if it is a class or an alias of one.

    Raises ToolError (InvalidArguments).
    """
    wanted = None
    if values[-1] is None or _is_type(values[-1]):
        *others, wanted = values
        values = tuple(others)
    if (parameters := find_parameters(tool_name)) is None:
        message = "its parameters are unknown here, so write the arguments as a dict or as keywords"
        raise ToolError(message, tool=tool_name, reason="InvalidArguments")
    return bind_values(tool_name, values, parameters), wanted


def _is_type(value: object) -> bool:
    """Return whether a value is a type, such as `dict`, `list[Issue]` or `Issue | None`, and so not an argument."""
    return isinstance(value, type) or hasattr(value, "__origin__") or hasattr(value, "__args__")


async def _call(tool_name: str, arguments: _Arguments, timeout: float | None) -> Any:  # noqa: ASYNC109 - as above
    try:
        value = await tool_session.get_session().call(tool_name, arguments, timeout)
    except ToolError as error:
        # A function that an overlay adds, such as github.create_issue for issue_write.
        if error.reason != "NoSuchTool" or (function := find_added_function(tool_name)) is None:
            raise
        return await function(**arguments)
    format_name = find_result_format(tool_name)
    return value if format_name is None else read_result(format_name, value)


async def call_wrapped(
    tool: str,
    values: Any,
    arguments: _Arguments,
    parameters: Mapping[str, bool],
    spellings: Mapping[str, str] = {},
    *,
    fixed: Mapping[str, Any] = {},
    is_open: bool = False,
    result_format: str | None = None,
) -> Any:
    """Call a tool for one of the functions under `servers`.

    Args:
        tool: SERVER.TOOL, the tool's original name.
        values: positional arguments: one dict with all arguments, or values in the order of `parameters`. Wrappers of
            an earlier release pass that dict or None alone.
        arguments: keyword arguments.
        parameters: the tool's parameters by their original names, and whether they are required.
        spellings: other spellings of parameters, and the original names.
        fixed: arguments that every call of the function has.
        is_open: whether the tool accepts other parameters too.
        result_format: the format of the tool's results, from which their value is read.
    """
    values = values if isinstance(values, tuple) else (values,)
    merged = merge_arguments(tool, values, arguments, parameters, spellings, is_open=is_open)
    value = await tool_session.get_session().call(tool, {**merged, **fixed}, None)
    return value if result_format is None else read_result(result_format, value)
