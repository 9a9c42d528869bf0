"""All controllers of one served namespace. Namespaces share no state that one of them could spoil for another."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_operator.cluster.broker import BrokerDiscovery
from mcp_exec_operator.cluster.kube.api import OperatorApi, WritePriority
from mcp_exec_operator.cluster.kube.observations import CallerProofs
from mcp_exec_operator.core.executions.binder import Binder
from mcp_exec_operator.core.executions.controller import ExecutionController
from mcp_exec_operator.core.executions.lifecycle import ExecutionLifecycle
from mcp_exec_operator.core.executions.specs import SpecCache
from mcp_exec_operator.core.executions.writer import ExecutionStatusWriter
from mcp_exec_operator.core.feature import Feature, FeatureContext
from mcp_exec_operator.core.pods.authenticity import PodAuthenticator
from mcp_exec_operator.core.pods.manifest import IsolationAddresses
from mcp_exec_operator.core.pods.network_policy import ReleasePods
from mcp_exec_operator.core.pods.nodes import NodeCache
from mcp_exec_operator.core.pools.registry import PoolRegistry
from mcp_exec_operator.core.pools.reviews import PodTimes
from mcp_exec_operator.core.pools.services import PoolServices
from mcp_exec_operator.core.resync import Resync, ResyncPace
from mcp_exec_operator.core.stored import EarlyDeletions, StoredBudget
from mcp_exec_operator.core.ttl import TTLController
from mcp_exec_operator.features import FEATURES
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.settings import Settings

log = logging.getLogger(__name__)

F = TypeVar("F", bound=Feature)
Kind = Literal["execution", "session", "pool", "pod", "policy", "node"]
"""Kinds of objects whose watch events the manager handles. They are labels of a metric."""


@dataclass(frozen=True, kw_only=True)
class SharedParts:
    """What the namespaces of a process have in common: connections, metrics, nodes, and bounds on memory and load."""

    settings: Settings
    kube: KubeClient
    supervisors: SupervisorClient
    metrics: Metrics
    api: OperatorApi
    specs: SpecCache
    pace: ResyncPace
    broker: BrokerDiscovery | None
    """None if no execution has tools."""
    isolation: Callable[[], IsolationAddresses]
    suspect: Callable[[str], None]
    """Called with a namespace if a list of it is refused."""
    write_priority: WritePriority = field(default_factory=WritePriority)
    nodes: NodeCache = field(default_factory=NodeCache)


class NamespaceManager:
    """All controllers of a namespace. The `observe` methods handle watch events and never wait."""

    def __init__(self, namespace: str, *, shared: SharedParts) -> None:
        """Build all controllers. Nothing runs yet."""
        self.namespace, self.shared, self.tasks = namespace, shared, TaskRegistry()
        settings = shared.settings.model_copy(update={"namespaces": (namespace,)})
        api, supervisors, metrics, tasks = shared.api, shared.supervisors, shared.metrics, self.tasks
        self.shutdown_seconds = settings.shutdown_seconds
        writer = ExecutionStatusWriter(api=api, priority=shared.write_priority, tasks=tasks)
        self.pools = PoolRegistry(
            services=PoolServices(
                api=api,
                supervisors=supervisors,
                authenticator=PodAuthenticator(keys=supervisors.keys),
                tasks=tasks,
                metrics=metrics,
                release=ReleasePods.of(settings),
                isolation=shared.isolation,
                assign_users=settings.sandbox_users == "Random",
                broker=shared.broker is not None,
                write_priority=shared.write_priority,
            ),
            nodes=shared.nodes,
            template_prefixes=settings.template_prefixes,
            times=PodTimes(start_timeout=settings.pod_start_timeout_seconds, seal_after=settings.seal_after_seconds),
        )
        attestor = Attestor(keys=supervisors.keys, accounts_proven=settings.accounts_proven)
        callers = CallerProofs(attestor=attestor)
        self.ttl = TTLController(
            api=api,
            max_seconds=settings.max_ttl_seconds,
            budget=StoredBudget(max_stored=settings.max_stored, max_stored_bytes=settings.max_stored_bytes),
        )
        self.ttl.deleted_early.connect(EarlyDeletions(api=api, tasks=tasks, metrics=metrics).report)
        context = FeatureContext(
            namespace=namespace,
            settings=settings,
            kube=shared.kube,
            api=api,
            supervisors=supervisors,
            broker=shared.broker,
            attestor=attestor,
            callers=callers,
            metrics=metrics,
            tasks=tasks,
            write_priority=shared.write_priority,
            pools=self.pools,
            writer=writer,
            ttl=self.ttl,
        )
        self.features = tuple(build(context) for build in FEATURES.values())
        binder = Binder(
            pools=self.pools,
            writer=writer,
            features=tuple(each.executions for each in self.features if each.executions is not None),
            supervisors=supervisors,
            bind_timeout_seconds=settings.bind_timeout_seconds,
        )
        lifecycle = ExecutionLifecycle(
            api=api,
            pools=self.pools,
            binder=binder,
            writer=writer,
            supervisors=supervisors,
            ttl=self.ttl,
            tasks=tasks,
            metrics=metrics,
        )
        self.executions = ExecutionController(
            lifecycle=lifecycle,
            pools=self.pools,
            writer=writer,
            callers=callers,
            specs=shared.specs,
            features=binder.features,
            ttl=self.ttl,
            tasks=tasks,
            metrics=metrics,
        )
        self.resync = Resync(
            api=api,
            pools=self.pools,
            holders=tuple(each.holders for each in self.features if each.holders is not None),
            executions=self.executions,
            metrics=metrics,
            namespace=namespace,
            pace=shared.pace,
            suspect=shared.suspect,
        )

    def feature(self, kind: type[F]) -> F:
        """Return the feature of this type. Raises StopIteration if it is not registered."""
        return next(each for each in self.features if isinstance(each, kind))

    def observe(self, kind: Kind, body: Object, deleted: bool) -> None:
        """Handle a watch event of an object of this kind."""
        match kind:
            case "execution":
                self.executions.observe(body, deleted=deleted)
            case "pool":
                self.pools.observe_pool(body, deleted=deleted)
            case "pod":
                self.pools.observe_pod(body, deleted=deleted)
            case "policy":
                self.pools.observe_policy(body, deleted=deleted)
        if kind in ("policy", "session"):
            for feature in self.features:
                feature.observe(kind, body, deleted=deleted)

    def observe_deletion(self, deleting: bool) -> None:
        """End the sandboxes if the namespace is being deleted, and serve it if it was created again."""
        namespace = self.namespace
        if not deleting:
            if namespace in self.pools.closed:
                for feature in self.features:
                    feature.open_namespace()
            self.pools.closed.discard(namespace)
        elif namespace not in self.pools.closed:
            log.warning("the namespace is being deleted: its executions are cancelled", extra={"namespace": namespace})
            self.executions.cancel_namespace(namespace)
            for feature in self.features:
                feature.close_namespace()
            self.pools.close_namespace(namespace)

    def end_withdrawn(self) -> None:
        """End what lives by a key that is not accepted any more."""
        self.executions.cancel_withdrawn()
        for feature in self.features:
            feature.end_withdrawn()

    def abort(self) -> None:
        """Cancel everything at once, writes too, because another operator may be about to lead."""
        self.shutdown_seconds = 0.0
        self.tasks.cancel_all()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Resync until it succeeds, then reconcile while the context lasts, then let writes in flight end.

        What waits or runs stays as its status says, for the next operator of the namespace.
        """
        loops: list[asyncio.Task[None]] = []
        try:
            async with AsyncExitStack() as stack:
                for feature in self.features:
                    await stack.enter_async_context(feature.running())
                # before the first resync: what is expired is deleted even if that never ends
                loops.append(self.tasks.spawn(self.ttl.run(), name="ttl"))
                for feature in self.features:
                    loops += [self.tasks.spawn(loop, name=name) for name, loop in feature.list_loops().items()]
                try:
                    await self.resync.begin()
                    for feature in self.features:
                        await feature.prepare()
                    self.pools.open()
                    loops.append(self.tasks.spawn(self.resync.run(), name="resync"))
                    for feature in self.features:
                        serving = feature.list_serving_loops()
                        loops += [self.tasks.spawn(loop, name=name) for name, loop in serving.items()]
                    yield
                finally:
                    await self._close(loops)
        finally:
            self.resync.tried.set()
            self._discard_measures()

    async def _close(self, loops: list["asyncio.Task[None]"]) -> None:
        for loop in loops:
            loop.cancel()
        await self.pools.close()
        await self.executions.close(grace_seconds=self.shutdown_seconds)
        for feature in self.features:
            feature.close()
        await self.tasks.close(grace_seconds=self.shutdown_seconds)

    def _discard_measures(self) -> None:
        """Drop the series of the namespace, and what the pace of resyncs counts for it."""
        self.shared.metrics.drop(namespace=self.namespace)
        self.shared.pace.durations.pop(self.namespace, None)
        for feature in self.features:
            feature.discard_measures()
