"""`search_tools`: the tools that this execution may call, found in the catalogs that lie beside the wrappers."""

import json
from pathlib import Path
from typing import Any

from mcp_exec_sandbox.protocol import CATALOG_FILE, SERVERS_FOLDER
from mcp_exec_sandbox.tools import tool_session as session
from mcp_exec_tools.catalog import Catalog
from mcp_exec_tools.search.index import Index

_indexes: dict[session.Session, Index] = {}


def search_tools(query: str = "", detail_level: str = "name_only", limit: int = 100) -> list[dict[str, Any]]:
    """The tools that fit the query best, best first; an empty query lists all.

    Args:
        query: what to do, or the name of a server or tool.
        detail_level: `name_only` (name, server), `with_description` (also description, import) or `full` (also
            input_schema, output_schema).
        limit: at most so many.

    Raises:
        ValueError: there is no such level, or the limit can't be.
    """
    current = session.current()
    index = _indexes.get(current)
    if index is None:
        catalogs = _catalogs(current.workspace / SERVERS_FOLDER)
        modules = {catalog.server: module for module, catalog in catalogs.items()}
        index = _indexes[current] = Index(catalogs.values(), modules=modules)
    found: list[dict[str, Any]] = index.search(query, detail_level=detail_level, limit=limit, allow=current.allow)
    return found


def _catalogs(folder: Path) -> dict[str, Catalog]:
    """The catalogs of the servers that are here, by package; one that the code has spoilt is left out."""
    found = {}
    for path in sorted(folder.glob(f"*/{CATALOG_FILE}")):
        try:
            entry = json.loads(path.read_bytes())
            found[path.parent.name] = Catalog.of(entry["server"], entry["tools"])
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            continue
    return found
