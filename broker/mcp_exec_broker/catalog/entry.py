"""What is known of one server and its tools, and the copy that is made of it for the disk."""

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
from mcp_exec_tools.catalog import Catalog


@dataclass(frozen=True, kw_only=True)
class ToolListing:
    """The tools of a server for somebody, as they were listed."""

    catalog: Catalog
    declared: Mapping[str, Mapping[str, Any] | None]
    """What each tool says that it returns."""
    expires: float
    """By the monotonic clock: when they are to be listed again."""
    is_public: bool = False
    """Whether they are the same for everybody."""
    of_user: bool = False
    """Whether they were listed with a single user's credentials."""


@dataclass(kw_only=True)
class CatalogEntry:
    """What is known of one server."""

    known: ToolListing | None = None
    """Its tools as they were last listed, without a user."""
    available: bool | None = None
    reason: str = ""
    message: str = ""
    listed_at: datetime | None = None
    protocol_version: str = ""
    identity: str = ""
    """What it says that it is."""
    credentials_found: bool = True
    generation: int = 0
    """Of the spec that this speaks of."""
    failures: int = 0
    poked: asyncio.Event = field(default_factory=asyncio.Event)


def build_copy(entry: CatalogEntry) -> CatalogCopy | None:
    """What may be copied to the disk; none where a single user's credentials were needed to list it."""
    known = entry.known
    if known is None or known.of_user:
        return None
    # what was learned of results is in the ToolServer's status
    tools = [replace(tool, output_schema=known.declared[tool.name], inferred=False) for tool in known.catalog.tools]
    return CatalogCopy(
        protocol_version=entry.protocol_version,
        identity=entry.identity,
        is_public=known.is_public,
        tools=[tool.to_json() for tool in tools],
    )


def restore_entry(copy: CatalogCopy, listed_at: datetime, *, server: ToolServer, spec: ToolServerSpec) -> CatalogEntry:
    """What a copy says of a server, as far as code may see it by now."""
    catalog = Catalog.from_tools(server.name, [tool for tool in copy.tools if is_visible(spec, tool["name"])])
    known = ToolListing(
        catalog=catalog,
        declared={tool.name: tool.output_schema for tool in catalog.tools},
        expires=monotonic(),
        is_public=copy.is_public,
    )
    return CatalogEntry(
        known=known, listed_at=listed_at, protocol_version=copy.protocol_version, identity=copy.identity
    )
