"""The tools of each namespace, as the broker tells them: server by server, and ready to be searched."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Self

from mcp_exec_common.broker.client import BrokerClient, BrokerError
from mcp_exec_common.kube.objects import Object
from mcp_exec_gateway.http.problems import Problem, unavailable
from mcp_exec_gateway.memory import Memory
from mcp_exec_tools.catalog import Catalog, Tool
from mcp_exec_tools.patterns import any_matches
from mcp_exec_tools.search.index import Index

log = logging.getLogger(__name__)

FRESH_SECONDS: Final = 5.0
_ASK_SECONDS: Final = 5.0


@dataclass(frozen=True, kw_only=True)
class _Known:
    hash: str
    catalogs: dict[str, Catalog]
    """By server."""
    index: Index

    @classmethod
    def of(cls, digest: str, answer: Object) -> Self:
        servers: Any = answer.get("servers")
        if not isinstance(servers, list):
            raise BrokerError("the broker answers no servers")
        try:
            found = [Catalog.of(str(each["server"]), each["tools"]) for each in servers]
            return cls(hash=digest, catalogs={each.server: each for each in found}, index=Index(found))
        except (ValueError, TypeError, KeyError) as error:
            raise BrokerError(f"the broker answers no catalog: {type(error).__name__} {error}") from error


@dataclass(kw_only=True)
class Catalogs:
    """What is known of each namespace. While the broker is down, the last one that it told is as good as any."""

    brokers: BrokerClient | None
    clock: Callable[[], float] = monotonic
    _fresh: Memory[_Known] = field(init=False)
    _last: dict[str, _Known] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Makes the memory."""
        self._fresh = Memory(lifetime=lambda known: FRESH_SECONDS, clock=self.clock)

    async def index(self, namespace: str) -> Index:
        """The index of the namespace's tools, which is one of those served. Raises Problem where there is none."""
        return (await self._known(namespace)).index

    async def tools(self, namespace: str, server: str, *, allow: Iterable[str] | None) -> list[Tool]:
        """A server's tools, as far as the patterns speak of them. Raises Problem where there are none."""
        known = await self._known(namespace)
        patterns = None if allow is None else list(allow)
        found = {
            name: [
                tool for tool in catalog.tools if patterns is None or any_matches(patterns, server=name, tool=tool.name)
            ]
            for name, catalog in known.catalogs.items()
        }
        if not found.get(server):
            others = ", ".join(name for name, tools in sorted(found.items()) if tools) or "none"
            detail = f"no tools of a server {server[:100]!r} are known here; servers with tools: {others}"
            raise Problem("not-found", 404, detail)
        return found[server]

    async def _known(self, namespace: str) -> _Known:
        return await self._fresh.get(namespace, lambda: self._look_up(namespace))

    async def _look_up(self, namespace: str) -> _Known:
        last = self._last.get(namespace)
        if self.brokers is None:
            raise unavailable("no tool broker is configured")
        try:
            answer = await self.brokers.get(f"/v1/namespaces/{namespace}/catalog", timeout_seconds=_ASK_SECONDS)
            digest = str(answer.get("hash"))
            if last is None or last.hash != digest:
                # many tools take more time than other requests should wait
                last = await asyncio.to_thread(_Known.of, digest, answer)
                self._last[namespace] = last
        except BrokerError as error:
            log.warning("the tools of %s are not known: %s", namespace, error)
            if last is None:
                raise unavailable("the tool broker does not answer") from error
        return last
