"""All that the operator does for tools: finds the broker, runs stdio servers, and keeps wrappers in idle pods.

Without a broker there is none of it, and an execution that asks for tools is refused.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, Self

from mcp_exec_api.constants import TOOL_SERVERS
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_operator.executions.tools import Tooling
from mcp_exec_operator.kube.write_priority import WritePriority
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.pods.cache import Pod
from mcp_exec_operator.pools.partition import Partition
from mcp_exec_operator.pools.registry import PoolRegistry
from mcp_exec_operator.settings import Settings
from mcp_exec_operator.toolservers.api import ToolObjects
from mcp_exec_operator.toolservers.broker import BrokerLink
from mcp_exec_operator.toolservers.controller import ToolServers
from mcp_exec_operator.toolservers.manifests import BridgeImage
from mcp_exec_operator.toolservers.wrappers import Wrappers

_SYNC_SECONDS: Final = 3.0
"""How long the start waits for the broker's Service: executions that were bound before need its address."""


@dataclass(kw_only=True, eq=False)
class Tools:
    """The parts of it, put together."""

    namespaces: tuple[str, ...]
    tasks: TaskRegistry
    link: BrokerLink | None = None
    wrappers: Wrappers | None = None
    servers: ToolServers | None = None
    reflectors: list[Reflector] = field(default_factory=list)
    _pools: list[PoolRegistry] = field(default_factory=list)
    _loops: list[asyncio.Task[None]] = field(default_factory=list)

    @classmethod
    def create(
        cls,
        *,
        settings: Settings,
        kube: KubeClient,
        sandboxes: SupervisorClient,
        metrics: Metrics,
        tasks: TaskRegistry,
        write_priority: WritePriority,
    ) -> Self:
        """Builds all parts. Nothing runs yet."""
        made = cls(namespaces=settings.namespaces, tasks=tasks)
        if not settings.broker_service:
            return made
        made.link = BrokerLink.create(
            kube=kube,
            session=sandboxes.session,
            key=sandboxes.key,
            namespace=settings.release_namespace,
            service=settings.broker_service,
        )
        bridge = BridgeImage(image=settings.servers_image, pull_policy=settings.servers_image_pull_policy)
        made.servers = ToolServers(
            objects=ToolObjects(kube=kube, metrics=metrics),
            key=sandboxes.key,
            release_namespace=settings.release_namespace,
            bridge=bridge if settings.servers_image else None,
            sweep_seconds=settings.sweep_seconds,
        )
        made.wrappers = Wrappers(
            brokers=made.link.brokers,
            sandboxes=sandboxes,
            tasks=tasks,
            namespaces=settings.namespaces,
            write_priority=write_priority,
            refresh_seconds=settings.wrappers_seconds,
            pools=lambda: [pool for pools in made._pools for pool in pools],
            has_servers=made.servers.has_servers,
        )
        made.servers.on_change = made.wrappers.ask
        made.reflectors = [
            Reflector(
                kube=kube, path=custom_resource_path(TOOL_SERVERS, namespace=namespace), on_change=made.servers.observe
            )
            for namespace in settings.namespaces
        ]
        return made

    @property
    def tooling(self) -> Tooling:
        """What equips executions."""
        return Tooling(link=self.link, wrappers=self.wrappers)

    def attach(self, pools: PoolRegistry) -> None:
        """Names the pools whose idle pods are given wrappers."""
        self._pools.append(pools)

    def became_warm(self, pool: Partition, pod: Pod) -> None:
        """A pod stands idle."""
        if self.wrappers is not None:
            self.wrappers.became_warm(pool, pod)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Works while the context stands."""
        if self.link is None or self.servers is None or self.wrappers is None:
            yield
            return
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.link.running())
            for reflector in self.reflectors:
                await stack.enter_async_context(reflector.run_in_background())
            with suppress(TimeoutError):
                async with asyncio.timeout(_SYNC_SECONDS):
                    await self.link.services.synced.wait()
                    await self.link.endpoints.synced.wait()
            self._loops.append(self.tasks.spawn(self.servers.run(), name="tool servers"))
            self._loops += [
                self.tasks.spawn(self.wrappers.keep(namespace), name=f"wrappers of {namespace}")
                for namespace in self.namespaces
            ]
            yield

    def close(self) -> None:
        """Begins nothing any more."""
        for loop in self._loops:
            loop.cancel()
        self._loops.clear()
        if self.wrappers is not None:
            self.wrappers.close()
