"""The functions that code calls tools with."""

from collections.abc import Mapping
from typing import Any

from mcp_exec_sandbox.tools import tool_session as session
from mcp_exec_sandbox.tools.arguments import as_mapping, merge
from mcp_exec_sandbox.tools.errors import ToolError
from mcp_exec_sandbox.tools.results import cast


async def call_mcp_tool(
    tool_name: str,
    input: Any = None,
    type: Any = None,
    *,
    timeout: float | None = None,  # noqa: ASYNC109 - the tool's own time, which the broker keeps
    **arguments: Any,
) -> Any:
    """Call an MCP tool and return what it answered.

    Args:
        tool_name: `github.create_issue` or `mcp__github__create_issue`; snake_case and camelCase both work.
        input: the arguments as a dict. Parameters may also be given by keyword, except those that are called
            `input`, `type` or `timeout`.
        type: what the result should be: a TypedDict, a dataclass, a list of those. Missing fields are an error.
        timeout: seconds that the tool may take, below the execution's own limit.

    Returns:
        Structured content, else parsed JSON, else text; a ToolResult where the tool sent files.

    Raises:
        ToolError: the tool failed, or was called with wrong arguments. Its subclasses ToolDenied, ToolTimeout and
            ToolProtocolError are the other ways to fail.
    """
    if not isinstance(tool_name, str):
        raise ToolError("the name of a tool is a string such as 'github.create_issue'", reason="NoSuchTool")
    given = as_mapping(tool_name, input)
    if twice := given.keys() & arguments.keys():
        raise ToolError(f"the parameter {min(twice)} is given twice", tool=tool_name, reason="InvalidArguments")
    value = await session.current().call(tool_name, {**given, **arguments}, timeout)
    return value if type is None else cast(value, type, tool=tool_name)


async def call_wrapped(
    tool: str,
    input: Any,
    arguments: Mapping[str, Any],
    parameters: Mapping[str, bool],
    spellings: Mapping[str, str] = {},
) -> Any:
    """What the functions under `servers` call.

    Args:
        tool: SERVER.TOOL, the tool by its original name.
        input: arguments as a dict, or None.
        arguments: arguments that were given by keyword.
        parameters: the tool's parameters by their original names, and whether they must be given.
        spellings: other ways to write a parameter, and its original name.
    """
    return await session.current().call(tool, merge(tool, input, arguments, parameters, spellings), None)
