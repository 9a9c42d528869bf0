"""Functions that code calls and finds tools with.

Facts about a tool come from its server's catalog, which is read only if they are needed.
"""

import importlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from mcp_exec_sandbox.protocol import CATALOG_FILE, SERVERS_FOLDER
from mcp_exec_sandbox.tools import tool_session
from mcp_exec_sandbox.tools.arguments import bind_values, merge_arguments, to_mapping
from mcp_exec_sandbox.tools.errors import ToolError
from mcp_exec_sandbox.tools.results import cast_result
from mcp_exec_tools.catalog import SKILLS, Catalog
from mcp_exec_tools.names import find_close_names, fold, identifier, snake_case, split_tool
from mcp_exec_tools.overlays import read_result
from mcp_exec_tools.search.index import MAX_LIMIT, Index

MAX_MEANT = 3
"""Maximum number of tools that are suggested for a name."""

_servers: dict[tuple[tool_session.ToolSession, str], Any] = {}
"""Catalogs that were needed, with overlays applied, by session and server; None if one can't be read."""
_indexes: dict[tool_session.ToolSession, Index] = {}
"""The index of the current session."""


def find_parameters(tool_name: str) -> list[str] | None:
    """Return the tool's parameters in their positional order, or None if they are unknown."""
    # Imported for positional arguments, not in every idle sandbox.
    from mcp_exec_tools.schemas.parameters import read_parameters

    server, name = _split(tool_name)
    added = _read_server(server)
    if added is None:
        return None
    spellings = added.catalog.spellings
    if (tool := spellings.get(name) or spellings.get(snake_case(name))) is None:
        function = added.functions.get(name) or added.functions.get(snake_case(name))
        tool = function.tool if function is not None else None
    return None if tool is None else list(read_parameters(tool.input_schema).schemas)


def find_result_format(tool_name: str) -> str | None:
    """Return the format of the tool's results, if they wrap a value."""
    server, name = _split(tool_name)
    if snake_case(name) not in _list_tools_with_formats() or (added := _read_server(server)) is None:
        return None
    tool = added.catalog.spellings.get(name) or added.catalog.spellings.get(snake_case(name))
    return added.result_formats.get(tool.name) if tool is not None else None


def find_added_function(tool_name: str) -> Callable[..., Awaitable[Any]] | None:
    """Return the function of this name in the server's package, or None if there is none."""
    server, name = _split(tool_name)
    try:
        function = getattr(importlib.import_module(f"{SERVERS_FOLDER}.{identifier(server)}"), name)
    except (ImportError, AttributeError):
        return None
    return function if callable(function) else None


@cache
def _list_tools_with_formats() -> frozenset[str]:
    from mcp_exec_tools.overlays import load_shipped

    return frozenset(snake_case(name) for overlay in load_shipped().values() for name in overlay.results)


def _split(tool_name: str) -> tuple[str, str]:
    try:
        return split_tool(tool_name)
    except ValueError:
        return "", ""


def _read_server(server: str) -> Any:
    session = tool_session.get_session()
    key = (session, server)
    if key not in _servers:
        _servers[key] = _read_catalog(session, server)
    return _servers[key]


def _read_catalog(session: tool_session.ToolSession, server: str) -> Any:
    from mcp_exec_tools.catalog import Catalog
    from mcp_exec_tools.overlays import apply_overlays, load_shipped

    path = session.workspace / SERVERS_FOLDER / identifier(server) / CATALOG_FILE
    try:
        entry = json.loads(path.read_bytes())
        return apply_overlays(load_shipped().values(), Catalog.from_tools(entry["server"], entry["tools"]))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):  # the code may have damaged the file
        return None


def search_tools(query: str = "", detail_level: str = "name_only", limit: int = 100) -> list[dict[str, Any]]:
    """Return the tools and skills that match the query, best first. An empty query lists all.

    Args:
        query: a task, or the name of a server or tool.
        detail_level: `name_only` (name, server), `with_description` (also description, import) or `full` (also
            signature, input_schema, output_schema).
        limit: maximum number of tools.

    Raises:
        ValueError: the level or the limit is invalid.
    """
    session = tool_session.get_session()
    index = _indexes.get(session)
    if index is None:
        catalogs = read_catalogs(session.workspace / SERVERS_FOLDER)
        modules = {catalog.server: module for module, catalog in catalogs.items()}
        _indexes.clear()
        skills = [Catalog.from_skills(session.skills)] if session.skills else []
        index = _indexes[session] = Index([*catalogs.values(), *skills], modules={SKILLS: SKILLS, **modules})
    tools: list[dict[str, Any]] = index.search(query, detail_level=detail_level, limit=limit, allow=session.allow)
    return tools


def read_catalogs(folder: Path) -> dict[str, Catalog]:
    """Return the servers' catalogs by package, without those that the code has damaged."""
    catalogs = {}
    for path in sorted(folder.glob(f"*/{CATALOG_FILE}")):
        try:
            entry = json.loads(path.read_bytes())
            catalogs[path.parent.name] = Catalog.from_tools(entry["server"], entry["tools"])
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            continue
    return catalogs


_Arguments = Mapping[str, Any]


async def call_mcp_tool(
    tool_name: str | None = None,
    /,
    *values: Any,
    input: Any = None,
    type: Any = None,
    timeout: float | None = None,  # noqa: ASYNC109 - the tool's time limit, which the broker enforces
    **arguments: Any,
) -> Any:
    """Call an MCP tool and return its result.

    Args:
        tool_name: `github.create_issue` or `mcp__github__create_issue`; snake_case and camelCase both work.
        values: the arguments as a dict, and the type of the result. If the first value is no dict, it and the next
            ones are arguments themselves, in the tool's order; a last one that is a type is that of the result.
        input: the arguments as a dict, by keyword.
        type: the type of the result: a TypedDict, a dataclass or a list of those. Missing fields are an error.
        timeout: maximum duration of the call in seconds, within the execution's own limit.
        arguments: the arguments by keyword. A tool's own `timeout` is passed in the dict, and so is an `input` that is
            a dict, or a `type` that is a class.

    Returns:
        Structured content, else parsed JSON, else text. A ToolResult if the tool sent files.

    Raises:
        ToolError: the tool failed, or the arguments are wrong. Its subclasses ToolDenied, ToolTimeout and
            ToolProtocolError are the other kinds of failure.
    """
    tool_name = arguments.pop("tool_name", None) if tool_name is None else tool_name
    if not isinstance(tool_name, str):
        raise ToolError("the name of a tool is a string such as 'github.create_issue'", reason="NoSuchTool")
    if type is not None and not _is_type(type):
        arguments, type = {**arguments, "type": type}, None
    if input is not None and (values or (to_mapping(input) is None and "input" in (find_parameters(tool_name) or ()))):
        arguments, input = {**arguments, "input": input}, None
    positional, wanted = _bind(tool_name, values or (input,))
    type = wanted if type is None else type
    if duplicates := positional.keys() & arguments.keys():
        raise ToolError(f"the parameter {min(duplicates)} is given twice", tool=tool_name, reason="InvalidArguments")
    try:
        value = await _call(tool_name, {**positional, **arguments}, timeout)
    except ToolError as error:
        if error.reason == "InvalidArguments" and values and to_mapping(values[0]) is None:
            taken = f"positional arguments were taken as {', '.join(positional)}; write the arguments as a dict"
            error.message += f" ({taken})"
        raise
    return value if type is None else cast_result(value, type, tool=tool_name)


def _bind(tool_name: str, values: tuple[Any, ...]) -> tuple[_Arguments, Any]:
    """Return positional arguments by name, and the type, which is the last value if it is a class or an alias of one.

    Raises ToolError (InvalidArguments).
    """
    first, *others = values
    if len(others) <= 1 and (mapping := to_mapping(first)) is not None:
        wanted = others[0] if others else None
        if wanted is None or _is_type(wanted):
            return mapping, wanted
    wanted = None
    if len(values) > 1 and (values[-1] is None or _is_type(values[-1])):
        *kept, wanted = values
        values = tuple(kept)
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
        if error.reason != "NoSuchTool":
            raise
        if (function := find_added_function(tool_name)) is None:
            error.suggestions = error.suggestions or _find_meant(tool_name)
            raise
        return await function(**arguments)
    format_name = find_result_format(tool_name)
    return value if format_name is None else read_result(format_name, value)


def _find_meant(name: str) -> list[str]:
    """Return the tools that a name without its server may mean."""
    if _split(name) != ("", ""):
        return []
    tools = {f"{tool['server']}.{tool['name']}": tool["name"] for tool in search_tools("", limit=MAX_LIMIT)}
    same = [full for full, tool in tools.items() if fold(tool) == fold(name)]
    close = find_close_names(name, set(tools.values()))
    return (same or [full for full, tool in tools.items() if tool in close])[:MAX_MEANT]


async def call_wrapped(
    tool: str,
    values: Sequence[Any],
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
        values: positional arguments: one dict with all arguments, or values in the order of `parameters`.
        arguments: keyword arguments.
        parameters: the tool's parameters by their original names, and whether they are required.
        spellings: other spellings of parameters, and the original names.
        fixed: arguments that every call of the function has.
        is_open: whether the tool accepts other parameters too.
        result_format: the format of the tool's results; it decides how their value is read.
    """
    merged = merge_arguments(tool, values, arguments, parameters, spellings, is_open=is_open)
    value = await tool_session.get_session().call(tool, {**merged, **fixed}, None)
    return value if result_format is None else read_result(result_format, value)
