"""The operator without its watches: everything that it does with what they tell."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from time import monotonic
from typing import Self

from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_operator.executions.admission import CodeChecks
from mcp_exec_operator.executions.binder import Binder
from mcp_exec_operator.executions.controller import Reconciler
from mcp_exec_operator.executions.status_writer import StatusWriter
from mcp_exec_operator.executions.tools import Tooling
from mcp_exec_operator.kube.api import OperatorApi
from mcp_exec_operator.kube.write_priority import WritePriority
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.pools.controller import PoolController, PoolControllerConfig
from mcp_exec_operator.pools.pool import WarmPool
from mcp_exec_operator.pools.registry import PoolRegistry
from mcp_exec_operator.resync import Sweep
from mcp_exec_operator.settings import Settings
from mcp_exec_operator.toolservers.broker import BrokerDiscovery
from mcp_exec_operator.toolservers.component import ToolServerComponent
from mcp_exec_operator.toolservers.wrappers import NamespaceBundle, WrapperDistributor
from mcp_exec_operator.ttl import Expiry


@dataclass(kw_only=True, eq=False)
class Service:
    """Pools, executions and sweeps, put together. The `on_` methods take what watches tell; none ever waits."""

    pools: PoolRegistry
    reconciler: Reconciler
    sweep: Sweep
    expiry: Expiry
    tool_servers: ToolServerComponent | None
    tasks: TaskRegistry
    metrics: Metrics
    shutdown_seconds: float

    @classmethod
    def create(cls, *, settings: Settings, kube: KubeClient, sandboxes: SupervisorClient, metrics: Metrics) -> Self:
        """Builds all parts. Nothing runs yet."""
        tasks = TaskRegistry()
        api, write_priority = OperatorApi(kube=kube, metrics=metrics), WritePriority()
        broker = cls._discover_broker(settings, kube, sandboxes)
        distributor = WrapperDistributor(
            sandboxes=sandboxes,
            tasks=tasks,
            write_priority=write_priority,
            bundles={namespace: NamespaceBundle() for namespace in settings.namespaces},
        )
        tooling = Tooling(broker=broker, distributor=distributor)
        config = PoolControllerConfig(
            broker=broker is not None,
            release_namespace=settings.release_namespace,
            forbidden_address=kube.credentials.address() if settings.verify_isolation else "",
            pod_start_timeout_seconds=settings.pod_start_timeout_seconds,
        )

        def make_controller(pool: WarmPool) -> PoolController:
            return PoolController(
                pool=pool,
                api=api,
                supervisors=sandboxes,
                tasks=tasks,
                metrics=metrics,
                config=config,
                write_priority=write_priority,
                on_warm=distributor.deliver,
            )

        pools = PoolRegistry(tasks=tasks, make_controller=make_controller)
        tool_servers = None
        if broker is not None:
            tool_servers = ToolServerComponent.create(
                settings=settings,
                kube=kube,
                broker=broker,
                key=sandboxes.key,
                distributor=distributor,
                warm_pods=pools.warm_pods,
                metrics=metrics,
                tasks=tasks,
            )
        writer = StatusWriter(api=api, write_priority=write_priority)
        expiry = Expiry(api=api)
        reconciler = Reconciler(
            api=api,
            pools=pools,
            binder=Binder(
                pools=pools,
                writer=writer,
                sandboxes=sandboxes,
                tooling=tooling,
                checks=CodeChecks(metrics=metrics),
                bind_timeout_seconds=settings.bind_timeout_seconds,
            ),
            writer=writer,
            sandboxes=sandboxes,
            tooling=tooling,
            expiry=expiry,
            tasks=tasks,
            metrics=metrics,
        )
        sweep = Sweep(
            api=api,
            pools=pools,
            reconciler=reconciler,
            metrics=metrics,
            namespaces=settings.namespaces,
            every_seconds=settings.sweep_seconds,
        )
        return cls(
            pools=pools,
            reconciler=reconciler,
            sweep=sweep,
            expiry=expiry,
            tool_servers=tool_servers,
            tasks=tasks,
            metrics=metrics,
            shutdown_seconds=settings.shutdown_seconds,
        )

    @staticmethod
    def _discover_broker(settings: Settings, kube: KubeClient, sandboxes: SupervisorClient) -> BrokerDiscovery | None:
        if not settings.broker_service:
            return None
        return BrokerDiscovery.create(
            kube=kube,
            session=sandboxes.session,
            key=sandboxes.key,
            namespace=settings.release_namespace,
            service=settings.broker_service,
        )

    def on_execution(self, body: Object, deleted: bool) -> None:
        """A watch tells of an execution."""
        self.metrics.events.labels("execution").inc()
        self.reconciler.offer(body, deleted=deleted)

    def on_pool(self, body: Object, deleted: bool) -> None:
        """A watch tells of a pool."""
        self.metrics.events.labels("pool").inc()
        self.pools.observe_pool(body, deleted=deleted)

    def on_pod(self, body: Object, deleted: bool) -> None:
        """A watch tells of a pod."""
        self.metrics.events.labels("pod").inc()
        self.pools.observe_pod(body, deleted=deleted)

    def on_node(self, body: Object, deleted: bool) -> None:
        """A watch tells of a node."""
        self.metrics.events.labels("node").inc()
        self.pools.observe_node(body, deleted=deleted)

    def abandon(self) -> None:
        """Breaks off at once all that is under way, writes too: another operator may soon do it."""
        self.shutdown_seconds = 0.0
        self.tasks.cancel_all()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Sweeps, then works while the context stands, then lets writes under way end. Raises ApiError at first."""
        self.sweep.turned_at = monotonic()
        async with self.tool_servers.running() if self.tool_servers is not None else nullcontext():
            await self.sweep.once()
            self.pools.open()
            loops = [
                self.tasks.spawn(self.sweep.run(), name="sweep"),
                self.tasks.spawn(self.expiry.run(), name="expiry"),
            ]
            try:
                yield
            finally:
                for loop in loops:
                    loop.cancel()
                await self.pools.close()
                await self.reconciler.close(grace_seconds=self.shutdown_seconds)
                if self.tool_servers is not None:
                    self.tool_servers.close()
                await self.tasks.close(grace_seconds=self.shutdown_seconds)
