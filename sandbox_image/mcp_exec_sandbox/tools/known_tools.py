"""Facts about a tool that is called by its name: read from its server's catalog, only if they are needed."""

import importlib
import json
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any

from mcp_exec_sandbox.protocol import CATALOG_FILE, SERVERS_FOLDER
from mcp_exec_sandbox.tools import tool_session
from mcp_exec_tools.catalog import SKILLS, Catalog
from mcp_exec_tools.names import identifier, snake_case, split_tool
from mcp_exec_tools.search.index import Index

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
        catalogs = _read_catalogs(session.workspace / SERVERS_FOLDER)
        modules = {catalog.server: module for module, catalog in catalogs.items()}
        _indexes.clear()
        skills = [Catalog.from_skills(session.skills)] if session.skills else []
        index = _indexes[session] = Index([*catalogs.values(), *skills], modules={SKILLS: SKILLS, **modules})
    tools: list[dict[str, Any]] = index.search(query, detail_level=detail_level, limit=limit, allow=session.allow)
    return tools


def _read_catalogs(folder: Path) -> dict[str, Catalog]:
    """Return the servers' catalogs by package, without those that the code has damaged."""
    catalogs = {}
    for path in sorted(folder.glob(f"*/{CATALOG_FILE}")):
        try:
            entry = json.loads(path.read_bytes())
            catalogs[path.parent.name] = Catalog.from_tools(entry["server"], entry["tools"])
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            continue
    return catalogs
