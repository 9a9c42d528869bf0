"""Functions with which code calls tools."""

from collections.abc import Mapping
from typing import Any

from mcp_exec_sandbox.tools import tool_session
from mcp_exec_sandbox.tools.arguments import merge_arguments, to_mapping
from mcp_exec_sandbox.tools.errors import ToolError
from mcp_exec_sandbox.tools.results import cast_result


async def call_mcp_tool(
    tool_name: str,
    input: Any = None,
    type: Any = None,
    *,
    timeout: float | None = None,  # noqa: ASYNC109 - the tool's time limit, which the broker enforces
    **arguments: Any,
) -> Any:
    """Call an MCP tool and return its result.

    Args:
        tool_name: `github.create_issue` or `mcp__github__create_issue`; snake_case and camelCase both work.
        input: the arguments as a dict. Keywords are arguments too, except `input`, `type` and `timeout`.
        type: the type of the result: a TypedDict, a dataclass or a list of those. Missing fields are an error.
        timeout: maximum duration of the call in seconds, within the execution's own limit.

    Returns:
        Structured content, else parsed JSON, else text. A ToolResult if the tool sent files.

    Raises:
        ToolError: the tool failed, or the arguments are wrong. Its subclasses ToolDenied, ToolTimeout and
            ToolProtocolError are the other kinds of failure.
    """
    if not isinstance(tool_name, str):
        raise ToolError("the name of a tool is a string such as 'github.create_issue'", reason="NoSuchTool")
    positional = to_mapping(tool_name, input)
    if duplicates := positional.keys() & arguments.keys():
        raise ToolError(f"the parameter {min(duplicates)} is given twice", tool=tool_name, reason="InvalidArguments")
    value = await tool_session.get_session().call(tool_name, {**positional, **arguments}, timeout)
    return value if type is None else cast_result(value, type, tool=tool_name)


async def call_wrapped(
    tool: str,
    input: Any,
    arguments: Mapping[str, Any],
    parameters: Mapping[str, bool],
    spellings: Mapping[str, str] = {},
) -> Any:
    """Call a tool for one of the functions under `servers`.

    Args:
        tool: SERVER.TOOL, the tool's original name.
        input: arguments as a dict, or None.
        arguments: keyword arguments.
        parameters: the tool's parameters by their original names, and whether they are required.
        spellings: other spellings of parameters, and the original names.
    """
    merged = merge_arguments(tool, input, arguments, parameters, spellings)
    return await tool_session.get_session().call(tool, merged, None)
