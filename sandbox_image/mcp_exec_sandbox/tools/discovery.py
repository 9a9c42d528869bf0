"""Search of the tools that this execution may call, in the catalogs next to the wrappers."""

import json
from pathlib import Path
from typing import Any

from mcp_exec_sandbox.protocol import CATALOG_FILE, SERVERS_FOLDER
from mcp_exec_sandbox.tools import tool_session
from mcp_exec_tools.catalog import SKILLS, Catalog
from mcp_exec_tools.search.index import Index

_indexes: dict[tool_session.ToolSession, Index] = {}
"""The index of the current session."""


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
