"""The catalog of one server: its entry, its copy on disk, and the output schemas that are inferred from results.

A server that is down when the broker starts keeps its tools: the disk cache has one file per ToolServer, replaced as a
whole and named by the server's connection hash, so that a changed URL or command invalidates it. Best effort: I/O
errors are logged and ignored.

Schemas are inferred for tools that declare none. A schema grows from the first results of a tool and from some later
ones. It is stored in the ToolServer's status as long as the server lists the tool without an output schema.
"""

import asyncio
import hashlib
import json
import logging
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, field_validator

from mcp_exec_api.tool_server import ToolServerSpec
from mcp_exec_broker.core.upstream.servers import ToolServer
from mcp_exec_broker.core.upstream.tool_listing import OmittedEntry
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_common.util.backoff import Backoff
from mcp_exec_tools.catalog import Catalog, Tool

log = logging.getLogger(__name__)

_MAX_BYTES: Final = 4 * 1024 * 1024
"""Size of one file."""
_MAX_TOTAL_BYTES: Final = 64 * 1024 * 1024
_SUFFIX: Final = ".json"
_FIRST_BACKOFF: Final = 0.5
_LAST_BACKOFF: Final = 30.0
_FIRST_RESULTS: Final = 20
"""Results of a tool that are all observed; afterwards every hundredth."""
_INTERVAL: Final = 100
_MAX_RESULT_BYTES: Final = 64 * 1024
"""Size of an observed result."""
_MAX_SCHEMA_BYTES: Final = 8 * 1024
_MAX_TOOLS: Final = 100
"""Tools of one server with an inferred schema."""
_MAX_STATUS_BYTES: Final = 256 * 1024

Schemas = dict[str, dict[str, Any]]


class CatalogCopy(BaseModel):
    """Catalog of a server for no user in particular, without credentials."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    """Version of the format."""
    protocol_version: str
    identity: str
    """Name and version that the server states."""
    is_public: bool
    """Whether the tools are the same for everybody."""
    tools: list[dict[str, Any]]
    """Entries of `tools/list`."""

    @field_validator("tools")
    @classmethod
    def _require_names(cls, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if not all(isinstance(tool.get("name"), str) and tool["name"] for tool in tools):
            raise ValueError("a tool has no name")
        return tools


class CatalogDiskCache:
    """The files in one folder, which no other process uses."""

    def __init__(self, folder: Path, *, max_bytes: int = _MAX_BYTES, max_total_bytes: int = _MAX_TOTAL_BYTES) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._max_total_bytes = max_total_bytes
        self._sizes: dict[str, int] = {}
        self._digests: dict[str, bytes] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for path in folder.iterdir():
                if path.suffix == _SUFFIX:
                    self._sizes[path.stem] = path.stat().st_size
                else:  # an interrupted write
                    path.unlink()
        except OSError as error:
            log.warning("cannot use the disk cache of catalogs: %s", error)

    def get(self, server: ToolServer) -> tuple[CatalogCopy, datetime] | None:
        """Return the copy of a server's catalog and the time of its listing, or None if there is no valid one."""
        name = server.connection_hash
        if name not in self._sizes:
            return None
        path = self._get_path(name)
        try:
            with path.open("rb") as file:
                data = file.read(self._max_bytes + 1)
                listed_at = datetime.fromtimestamp(os.fstat(file.fileno()).st_mtime, UTC)
            if len(data) > self._max_bytes:
                raise ValueError(f"the file has more than {self._max_bytes} bytes")
            copy = CatalogCopy.model_validate(json.loads(data))
        except (OSError, ValueError, RecursionError) as error:
            # without the error's text, which may quote the file
            log.warning(
                "the cached catalog of a server is invalid: %s", type(error).__name__, extra=_build_log_fields(server)
            )
            self._remove(name)
            return None
        self._digests[name] = hashlib.sha256(data).digest()
        return copy, listed_at

    def put(self, server: ToolServer, copy: CatalogCopy | None) -> None:
        """Replace the copy of a catalog that was listed now; None removes it."""
        name = server.connection_hash
        if copy is None:
            self._remove(name)
            return
        data = json.dumps(copy.model_dump()).encode()
        digest = hashlib.sha256(data).digest()
        size = sum(self._sizes.values()) - self._sizes.get(name, 0) + len(data)
        if len(data) > self._max_bytes or size > self._max_total_bytes:
            log.warning(
                "the catalog of a server is too large for the disk cache",
                extra={**_build_log_fields(server), "bytes": len(data)},
            )
            self._remove(name)
            return
        path = self._get_path(name)
        try:
            if self._digests.get(name) == digest:
                os.utime(path)
                return
            unfinished = path.with_suffix(".new")
            unfinished.write_bytes(data)
            unfinished.replace(path)
        except OSError as error:
            log.warning(
                "cannot write the catalog of a server to the disk cache: %s", error, extra=_build_log_fields(server)
            )
            self._remove(name)
            return
        self._sizes[name], self._digests[name] = len(data), digest

    def retain(self, servers: Iterable[ToolServer]) -> None:
        """Remove all copies but those of these servers in their current form."""
        for name in self._sizes.keys() - {server.connection_hash for server in servers}:
            self._remove(name)

    def _get_path(self, name: str) -> Path:
        return self._folder / (name + _SUFFIX)

    def _remove(self, name: str) -> None:
        self._sizes.pop(name, None)
        self._digests.pop(name, None)
        with suppress(OSError):
            self._get_path(name).unlink(missing_ok=True)


def _build_log_fields(server: ToolServer) -> dict[str, str]:
    return {"namespace": server.namespace, "server": server.name}


@dataclass(frozen=True, kw_only=True)
class ToolListing:
    """The tools of a server, as listed for all users or for one."""

    catalog: Catalog
    declared: Mapping[str, Mapping[str, Any] | None]
    """Output schema that each tool declares."""
    expires: float
    """Time of the next listing, on the monotonic clock."""
    is_public: bool = False
    """Whether the tools are the same for everybody."""
    uses_user_credentials: bool = False
    """Whether the credentials of a single user were needed to list them."""
    size: int = 0
    """Bytes of the tools as JSON."""
    omitted: tuple[OmittedEntry, ...] = ()
    """The first tools that were left out, because they exceed a bound."""
    omitted_count: int = 0


@dataclass(kw_only=True)
class CatalogEntry:
    """The state of one server's catalog."""

    listing: ToolListing | None = None
    """The tools as last listed, for no user in particular."""
    available: bool | None = None
    """Whether the last listing succeeded; None before the first one."""
    reason: str = ""
    message: str = ""
    listed_at: datetime | None = None
    protocol_version: str = ""
    identity: str = ""
    """Name and version that the server states."""
    credentials_found: bool = True
    generation: int = 0
    """Generation of the spec that the entry refers to."""
    backoff: Backoff = field(default_factory=lambda: Backoff(first=_FIRST_BACKOFF, last=_LAST_BACKOFF))
    """Delay after failed listings."""
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the tools must be listed now."""

    def changed(self) -> None:
        """Have the tools listed now."""
        self.wakeup.set()


def build_copy(entry: CatalogEntry) -> CatalogCopy | None:
    """Return the copy for the disk, or None if the listing needed the credentials of a single user."""
    listing = entry.listing
    if listing is None or listing.uses_user_credentials:
        return None
    # inferred outputs are stored in the ToolServer's status instead
    tools = [replace(tool, output_schema=listing.declared[tool.name], inferred=False) for tool in listing.catalog.tools]
    return CatalogCopy(
        protocol_version=entry.protocol_version,
        identity=entry.identity,
        is_public=listing.is_public,
        tools=[tool.to_json() for tool in tools],
    )


def restore_entry(copy: CatalogCopy, listed_at: datetime, *, server: ToolServer, spec: ToolServerSpec) -> CatalogEntry:
    """Return the entry of a copy, with those tools that the current spec makes visible."""
    catalog = Catalog.from_tools(server.name, [tool for tool in copy.tools if spec.shows(tool["name"])])
    listing = ToolListing(
        catalog=catalog,
        declared={tool.name: tool.output_schema for tool in catalog.tools},
        expires=monotonic(),
        is_public=copy.is_public,
    )
    return CatalogEntry(
        listing=listing, listed_at=listed_at, protocol_version=copy.protocol_version, identity=copy.identity
    )


@dataclass(kw_only=True, eq=False)
class OutputInference:
    """Inferred schemas by server and tool."""

    _schemas: dict[ObjectKey, Schemas] = field(default_factory=dict)
    _seen: dict[ObjectKey, dict[str, int]] = field(default_factory=dict)
    _listed: dict[ObjectKey, frozenset[str]] = field(default_factory=dict)
    """Tools that each server lists for no user in particular and that declare no output. Before the first listing every
    tool is accepted."""

    def get_schemas(self, key: ObjectKey) -> Schemas:
        """Return the schemas of a server by tool."""
        return self._schemas.get(key, {})

    def restore(self, server: ToolServer) -> None:
        """Add schemas from a ToolServer's status, written by an earlier process or another replica."""
        stored = server.status.get("inferredOutputs")
        if not isinstance(stored, Mapping):
            return
        schemas = self._schemas.setdefault(server.key, {})
        for tool, schema in stored.items():
            is_new = tool not in schemas and self._accepts(server.key, tool)
            if is_new and isinstance(schema, dict) and len(schemas) < _MAX_TOOLS:
                schemas[tool] = schema

    def retain(self, key: ObjectKey, tools: Iterable[str]) -> None:
        """Drop all schemas but those of these tools, which the server lists without an output schema."""
        self._listed[key] = frozenset(tools)
        for by_tool in (self._schemas.get(key, {}), self._seen.get(key, {})):
            for tool in by_tool.keys() - self._listed[key]:
                del by_tool[tool]

    def remove(self, key: ObjectKey) -> None:
        """Drop the schemas of a deleted server."""
        self._listed.pop(key, None)
        self._schemas.pop(key, None)
        self._seen.pop(key, None)

    def observe(self, key: ObjectKey, tool: Tool, value: Any, *, size: int) -> bool:
        """Infer from a result of a tool without a declared schema, and return whether its inferred schema changed."""
        declares = tool.output_schema is not None and not tool.inferred
        if declares or size > _MAX_RESULT_BYTES or not self._accepts(key, tool.name):
            return False
        seen = self._seen.setdefault(key, {})
        seen[tool.name] = count = seen.get(tool.name, 0) + 1
        if count > _FIRST_RESULTS and count % _INTERVAL:
            return False
        schemas = self._schemas.setdefault(key, {})
        before = schemas.get(tool.name)
        if before is None and len(schemas) >= _MAX_TOOLS:
            return False
        schema = _infer_schema(before, value)
        if schema == before or len(json.dumps(schema)) > _MAX_SCHEMA_BYTES:
            return False
        if len(json.dumps({**schemas, tool.name: schema})) > _MAX_STATUS_BYTES:
            return False
        schemas[tool.name] = schema
        return True

    def _accepts(self, key: ObjectKey, tool: str) -> bool:
        listed = self._listed.get(key)
        return listed is None or tool in listed


def add_inferred_output(tool: Tool, schemas: Schemas) -> Tool:
    """Return the tool with its inferred output schema if it declares none."""
    if tool.output_schema is not None and not tool.inferred:
        return tool
    schema = schemas.get(tool.name)
    return replace(tool, output_schema=schema, inferred=True) if schema else tool


def _infer_schema(before: dict[str, Any] | None, value: Any) -> dict[str, Any]:
    from mcp_exec_tools.output_inference import infer_schema, widen_schema

    return dict(infer_schema([value]) if before is None else widen_schema(before, value))
