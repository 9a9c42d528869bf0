"""The catalog entry of one server, and its conversion to and from the copy on disk."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from time import monotonic
from typing import Any

from mcp_exec_api.tool_server import ToolServerSpec
from mcp_exec_broker.access.policy import is_visible
from mcp_exec_broker.catalog.disk_cache import CatalogCopy
from mcp_exec_broker.upstream.servers import ToolServer
from mcp_exec_broker.upstream.tool_bounds import OmittedEntry
from mcp_exec_common.util.backoff import Backoff
from mcp_exec_tools.catalog import Catalog

_FIRST_BACKOFF = 0.5
_LAST_BACKOFF = 30.0


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
    catalog = Catalog.from_tools(server.name, [tool for tool in copy.tools if is_visible(spec, tool["name"])])
    listing = ToolListing(
        catalog=catalog,
        declared={tool.name: tool.output_schema for tool in catalog.tools},
        expires=monotonic(),
        is_public=copy.is_public,
    )
    return CatalogEntry(
        listing=listing, listed_at=listed_at, protocol_version=copy.protocol_version, identity=copy.identity
    )
