"""Tool catalogs of each namespace, read from the broker and indexed for search."""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Self

from mcp_exec_common.broker.client import BrokerClient, BrokerError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.util.ttl_cache import CoalescingCache
from mcp_exec_gateway.http.problems import HttpProblem, unavailable
from mcp_exec_gateway.tools.exported import ExportedTools
from mcp_exec_tools.catalog import Catalog, Tool
from mcp_exec_tools.patterns import matches_any
from mcp_exec_tools.search.index import Index

log = logging.getLogger(__name__)

FRESH_SECONDS: Final = 5.0
"""Time to live of a namespace's catalogs."""
_TIMEOUT_SECONDS: Final = 5.0


@dataclass(frozen=True, kw_only=True)
class NamespaceTools:
    """The tools of a namespace."""

    version: str
    """A digest that changes with the tools and with what ToolServers say of them."""
    catalogs: dict[str, Catalog]
    """Catalogs by server."""
    index: Index
    exported: ExportedTools
    """The tools as MCP clients see them."""

    @classmethod
    def from_answer(cls, version: str, answer: Object, skills: Catalog | None = None) -> Self:
        """Read the broker's answer. Raises BrokerError. Takes long if there are many tools."""
        servers: Any = answer.get("servers")
        if not isinstance(servers, list):
            raise BrokerError("the broker's answer has no list of servers")
        try:
            catalogs = [Catalog.from_tools(str(server["server"]), server["tools"]) for server in servers]
            index = Index([*catalogs, *([skills] if skills is not None else [])])
            direct = {str(server["server"]): frozenset(map(str, server.get("direct") or ())) for server in servers}
        except (ValueError, TypeError, KeyError) as error:
            raise BrokerError(f"the broker's catalog is malformed: {type(error).__name__} {error}") from error
        return cls(
            version=version,
            catalogs={catalog.server: catalog for catalog in catalogs},
            index=index,
            exported=ExportedTools.build(catalogs, direct=direct),
        )


@dataclass(kw_only=True)
class ToolCatalogs:
    """Catalogs by namespace. While the broker does not answer, its last answer is used, however old it is."""

    broker: BrokerClient | None
    """None if no broker is configured."""
    skills: Callable[[str], tuple[int, Catalog | None]] = lambda namespace: (0, None)
    """Returns the approved skills of a namespace, which searches find, and a number that changes with them."""
    clock: Callable[[], float] = monotonic
    _fresh: CoalescingCache[str, NamespaceTools] = field(init=False)
    _last: dict[str, NamespaceTools] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._fresh = CoalescingCache(ttl_seconds=lambda _: FRESH_SECONDS, clock=lambda: self.clock())

    def expire(self) -> None:
        """Read the catalogs again at the next request."""
        self._fresh.clear()

    async def get(self, namespace: str) -> NamespaceTools:
        """Return the tools of a served namespace. Raises HttpProblem if there are none."""
        return await self._fresh.get(namespace, lambda: self._fetch(namespace))

    async def get_index(self, namespace: str) -> Index:
        """Return the search index of a served namespace. Raises HttpProblem if there is none."""
        return (await self.get(namespace)).index

    async def count_tools(self, namespace: str, *, allow: Iterable[str] | None) -> dict[str, int]:
        """Return the number of tools that match the patterns, by server. Raises HttpProblem if it is unknown."""
        known = await self.get(namespace)
        patterns = None if allow is None else list(allow)
        counts = {
            name: sum(patterns is None or matches_any(patterns, server=name, tool=tool.name) for tool in catalog.tools)
            for name, catalog in sorted(known.catalogs.items())
        }
        return {name: count for name, count in counts.items() if count}

    async def list_tools(self, namespace: str, server: str, *, allow: Iterable[str] | None) -> list[Tool]:
        """Return a server's tools that match the patterns, or all. Raises HttpProblem, a 404, if there are none."""
        known = await self.get(namespace)
        patterns = None if allow is None else list(allow)
        by_server = {
            name: [
                tool for tool in catalog.tools if patterns is None or matches_any(patterns, server=name, tool=tool.name)
            ]
            for name, catalog in known.catalogs.items()
        }
        if not by_server.get(server):
            others = ", ".join(name for name, tools in sorted(by_server.items()) if tools) or "none"
            detail = f"there are no tools of a server {server[:100]!r} in this namespace; servers with tools: {others}"
            raise HttpProblem("not-found", 404, detail)
        return by_server[server]

    async def _fetch(self, namespace: str) -> NamespaceTools:
        last = self._last.get(namespace)
        number, skills = self.skills(namespace)
        if self.broker is None:
            if skills is None:
                raise unavailable("no tool broker is configured")
            return await asyncio.to_thread(NamespaceTools.from_answer, str(number), {"servers": []}, skills)
        try:
            answer = await self.broker.get(f"/v1/namespaces/{namespace}/catalog", timeout_seconds=_TIMEOUT_SECONDS)
            version = f"{_compute_version(answer)} {number}"
            if last is None or last.version != version:
                # in a thread, because many tools take longer to index than other requests should wait
                last = await asyncio.to_thread(NamespaceTools.from_answer, version, answer, skills)
                self._last[namespace] = last
        except BrokerError as error:
            log.warning("no new tool catalogs of namespace %s: %s", namespace, error)
            if last is None:
                raise unavailable("the tool broker does not answer") from error
        return last


def _compute_version(answer: Object) -> str:
    """Return the hash of the catalogs, with what is not part of it: the tools that ToolServers mark as direct."""
    servers: Any = answer.get("servers")
    marks = (
        [server.get("direct") for server in servers if isinstance(server, dict)] if isinstance(servers, list) else []
    )
    return f"{answer.get('hash')} {json.dumps(marks)}"
