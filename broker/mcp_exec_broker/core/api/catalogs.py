"""Catalogs and wrappers of a namespace, as operator and gateway fetch them."""

import asyncio
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import mcp_exec_tools
from mcp_exec_api.constants import Language
from mcp_exec_broker.core.access.policy import is_callable
from mcp_exec_broker.core.catalog.entry import CatalogEntry
from mcp_exec_broker.core.catalog.sync import CatalogSync
from mcp_exec_broker.core.upstream.servers import ToolServer, ToolServerCache
from mcp_exec_tools.catalog import Catalog

_MAX_DESCRIPTION: Final = 500
_GENERATOR: Final = Path(mcp_exec_tools.__file__).parent
"""The code that generates wrappers from catalogs."""


@dataclass(kw_only=True, eq=False)
class NamespaceCatalogs:
    """Catalogs by namespace, and their wrappers, which are generated again only if a catalog changes."""

    servers: ToolServerCache
    catalogs: CatalogSync
    _wrappers: dict[tuple[str, Language], tuple[str, bytes]] = field(default_factory=dict)
    """Hash of the catalogs and the encoded wrappers, by namespace and language."""

    def describe(self, namespace: str) -> dict[str, Any]:
        """Return all servers of a namespace with their tools, and the hash of their catalogs."""
        entries = self._list_entries(namespace)
        return {
            "hash": _compute_hash(_list_catalogs(entries)),
            "servers": [_describe_server(server, entry) for server, entry in entries],
        }

    async def build_wrappers(self, namespace: str, *, language: Language, known: str | None) -> bytes:
        """Return the wrappers of a namespace in a language as JSON: `{"hash": ..., "files": {name: text}}`.

        There are no files if the hash is the known one.
        """
        catalogs = _list_catalogs(self._list_entries(namespace))
        hash = _compute_hash(catalogs)
        if hash == known:
            return json.dumps({"hash": hash}).encode()
        built_hash, body = self._wrappers.get((namespace, language), ("", b""))
        if built_hash != hash:
            body = await asyncio.to_thread(_encode_wrappers, hash, catalogs, language)
            self._wrappers[namespace, language] = (hash, body)
        return body

    def _list_entries(self, namespace: str) -> list[tuple[ToolServer, CatalogEntry]]:
        return [(server, self.catalogs.get_entry(server.key)) for server in self.servers.list_servers(namespace)]


def _list_catalogs(entries: Iterable[tuple[ToolServer, CatalogEntry]]) -> list[Catalog]:
    return [_select_callable(server, entry.listing.catalog) for server, entry in entries if entry.listing is not None]


def _select_callable(server: ToolServer, catalog: Catalog) -> Catalog:
    """Return the catalog without the tools that the server's policy denies. Their functions keep their names."""
    spec = server.spec
    if spec is None:
        return catalog
    tools = tuple(tool for tool in catalog.tools if is_callable(spec, tool.name, tool.annotations))
    return catalog if len(tools) == len(catalog.tools) else Catalog(server=catalog.server, tools=tools)


@lru_cache
def compute_folder_digest(folder: Path) -> str:
    """Return a digest of the names and contents of a folder's files."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        digest.update(f"{path.relative_to(folder)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _compute_hash(catalogs: Iterable[Catalog]) -> str:
    # another release may generate other wrappers from the same catalogs
    text = json.dumps([compute_folder_digest(_GENERATOR), *(catalog.hash for catalog in catalogs)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _describe_server(server: ToolServer, entry: CatalogEntry) -> dict[str, Any]:
    tools = _select_callable(server, entry.listing.catalog).tools if entry.listing is not None else ()
    spec = server.spec
    return {
        "server": server.name,
        "available": entry.available is True,
        "description": entry.identity[:_MAX_DESCRIPTION],
        "tools": [tool.to_json() for tool in tools],
        "direct": [tool.name for tool in tools if spec is not None and spec.is_direct(tool.name)],
    }


def _encode_wrappers(hash: str, catalogs: list[Catalog], language: Language) -> bytes:
    from mcp_exec_tools.wrappers import build_files, format_catalog

    files = {**build_files(catalogs, language=language), "catalog.json": format_catalog(catalogs)}
    return json.dumps({"hash": hash, "files": files}, separators=(",", ":")).encode()
