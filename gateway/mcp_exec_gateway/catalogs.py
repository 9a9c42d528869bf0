"""The tools of each namespace, as the broker tells them, ready to be searched."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from mcp_exec_api.brokers import BrokerError, Brokers
from mcp_exec_api.kube import Object
from mcp_exec_api.tools.catalog import Catalog
from mcp_exec_api.tools.search import Index
from mcp_exec_gateway.memory import Memory
from mcp_exec_gateway.problems import unavailable

log = logging.getLogger(__name__)

FRESH_SECONDS: Final = 5.0
_ASK_SECONDS: Final = 5.0


@dataclass(frozen=True, kw_only=True)
class _Known:
    hash: str
    index: Index


@dataclass(kw_only=True)
class Catalogs:
    """One index for each namespace. While the broker is down, the last one that it told is as good as any."""

    brokers: Brokers | None
    clock: Callable[[], float] = monotonic
    _fresh: Memory[_Known] = field(init=False)
    _last: dict[str, _Known] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Makes the memory."""
        self._fresh = Memory(lifetime=lambda known: FRESH_SECONDS, clock=self.clock)

    async def index(self, namespace: str) -> Index:
        """The index of the namespace's tools, which is one of those served. Raises Problem where there is none."""
        return (await self._fresh.get(namespace, lambda: self._look_up(namespace))).index

    async def _look_up(self, namespace: str) -> _Known:
        last = self._last.get(namespace)
        if self.brokers is None:
            raise unavailable("no tool broker is configured")
        try:
            answer = await self.brokers.ask(f"/v1/namespaces/{namespace}/catalog", timeout_seconds=_ASK_SECONDS)
            digest = str(answer.get("hash"))
            if last is None or last.hash != digest:
                # many tools take more time than other requests should wait
                last = _Known(hash=digest, index=await asyncio.to_thread(_index_of, answer))
                self._last[namespace] = last
        except BrokerError as error:
            log.warning("the tools of %s are not known: %s", namespace, error)
            if last is None:
                raise unavailable("the tool broker does not answer") from error
        return last


def _index_of(answer: Object) -> Index:
    servers: Any = answer.get("servers")
    if not isinstance(servers, list):
        raise BrokerError("the broker answers no servers")
    try:
        return Index([Catalog.of(str(each["server"]), each["tools"]) for each in servers])
    except (ValueError, TypeError, KeyError) as error:
        raise BrokerError(f"the broker answers no catalog: {type(error).__name__} {error}") from error
