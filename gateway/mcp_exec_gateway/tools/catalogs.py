"""Tool catalogs of each namespace, read from the broker and indexed for search."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Self

from mcp_exec_common.broker.client import BrokerClient, BrokerError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.util.ttl_cache import CoalescingCache
from mcp_exec_gateway.http.problems import HttpProblem, unavailable
from mcp_exec_tools.catalog import Catalog, Tool
from mcp_exec_tools.patterns import matches_any
from mcp_exec_tools.search.index import Index

log = logging.getLogger(__name__)

FRESH_SECONDS: Final = 5.0
"""Time to live of a namespace's catalogs."""
_TIMEOUT_SECONDS: Final = 5.0


@dataclass(frozen=True, kw_only=True)
class _NamespaceTools:
    hash: str
    catalogs: dict[str, Catalog]
    """Catalogs by server."""
    index: Index

    @classmethod
    def from_answer(cls, digest: str, answer: Object) -> Self:
        servers: Any = answer.get("servers")
        if not isinstance(servers, list):
            raise BrokerError("the broker's answer has no list of servers")
        try:
            catalogs = [Catalog.from_tools(str(server["server"]), server["tools"]) for server in servers]
            index = Index(catalogs)
        except (ValueError, TypeError, KeyError) as error:
            raise BrokerError(f"the broker's catalog is malformed: {type(error).__name__} {error}") from error
        return cls(hash=digest, catalogs={catalog.server: catalog for catalog in catalogs}, index=index)


@dataclass(kw_only=True)
class ToolCatalogs:
    """Catalogs by namespace. While the broker does not answer, its last answer is used, however old it is."""

    broker: BrokerClient | None
    """None if no broker is configured."""
    clock: Callable[[], float] = monotonic
    _fresh: CoalescingCache[str, _NamespaceTools] = field(init=False)
    _last: dict[str, _NamespaceTools] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._fresh = CoalescingCache(ttl_seconds=lambda _: FRESH_SECONDS, clock=lambda: self.clock())

    async def get_index(self, namespace: str) -> Index:
        """Return the search index of a served namespace. Raises HttpProblem if there is none."""
        return (await self._get(namespace)).index

    async def list_tools(self, namespace: str, server: str, *, allow: Iterable[str] | None) -> list[Tool]:
        """Return a server's tools that match the patterns, or all. Raises HttpProblem, a 404, if there are none."""
        known = await self._get(namespace)
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

    async def _get(self, namespace: str) -> _NamespaceTools:
        return await self._fresh.get(namespace, lambda: self._fetch(namespace))

    async def _fetch(self, namespace: str) -> _NamespaceTools:
        last = self._last.get(namespace)
        if self.broker is None:
            raise unavailable("no tool broker is configured")
        try:
            answer = await self.broker.get(f"/v1/namespaces/{namespace}/catalog", timeout_seconds=_TIMEOUT_SECONDS)
            digest = str(answer.get("hash"))
            if last is None or last.hash != digest:
                # in a thread, because many tools take longer to index than other requests should wait
                last = await asyncio.to_thread(_NamespaceTools.from_answer, digest, answer)
                self._last[namespace] = last
        except BrokerError as error:
            log.warning("no new tool catalogs of namespace %s: %s", namespace, error)
            if last is None:
                raise unavailable("the tool broker does not answer") from error
        return last
