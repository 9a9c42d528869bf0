"""All controllers of one served namespace. Namespaces share no state that one of them could spoil for another."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.broker.records import RecordsClient
from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.skills.folder import read_folders
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_operator.cluster.broker import BrokerDiscovery
from mcp_exec_operator.cluster.kube.api import OperatorApi, WritePriority
from mcp_exec_operator.cluster.kube.observations import CallerProofs
from mcp_exec_operator.core.executions.binder import Binder
from mcp_exec_operator.core.executions.controller import ExecutionController
from mcp_exec_operator.core.executions.lifecycle import ExecutionLifecycle
from mcp_exec_operator.core.executions.specs import SpecCache
from mcp_exec_operator.core.executions.writer import ExecutionStatusWriter
from mcp_exec_operator.core.pods.authenticity import PodAuthenticator
from mcp_exec_operator.core.pods.manifest import IsolationAddresses
from mcp_exec_operator.core.pods.network_policy import ReleasePods
from mcp_exec_operator.core.pods.nodes import NodeCache
from mcp_exec_operator.core.pools.registry import PoolRegistry
from mcp_exec_operator.core.pools.reviews import PodTimes
from mcp_exec_operator.core.pools.services import PoolServices
from mcp_exec_operator.core.resync import Resync, ResyncPace
from mcp_exec_operator.core.ttl import EarlyDeletions, StoredBudget, TTLController
from mcp_exec_operator.features.checks.part import CodeChecks
from mcp_exec_operator.features.files.part import Files
from mcp_exec_operator.features.records.recorder import ExecutionRecorder
from mcp_exec_operator.features.rollouts.controller import RolloutComponent
from mcp_exec_operator.features.rollouts.measures import RecordsReader
from mcp_exec_operator.features.rollouts.record import RolloutMetrics
from mcp_exec_operator.features.sessions.controller import SessionComponent
from mcp_exec_operator.features.sessions.part import Sessions
from mcp_exec_operator.features.sessions.registry import SessionIndex
from mcp_exec_operator.features.skills.controller import SkillComponent
from mcp_exec_operator.features.skills.part import Skills
from mcp_exec_operator.features.tools.component import ToolServerComponent
from mcp_exec_operator.features.tools.part import Tools
from mcp_exec_operator.features.tools.wrappers import NamespaceBundle, WrapperDistributor
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.settings import Settings

log = logging.getLogger(__name__)


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
    rollout_metrics: RolloutMetrics
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
        kube, supervisors, broker, metrics = shared.kube, shared.supervisors, shared.broker, shared.metrics
        api, write_priority = shared.api, shared.write_priority
        self.shutdown_seconds = settings.shutdown_seconds
        writer = ExecutionStatusWriter(api=api, priority=write_priority, tasks=self.tasks)
        distributor = WrapperDistributor(
            sandboxes=supervisors,
            tasks=self.tasks,
            write_priority=write_priority,
            bundles={namespace: NamespaceBundle()},
        )
        services = PoolServices(
            api=api,
            supervisors=supervisors,
            authenticator=PodAuthenticator(keys=supervisors.keys),
            tasks=self.tasks,
            metrics=metrics,
            release=ReleasePods.of(settings),
            isolation=shared.isolation,
            assign_users=settings.sandbox_users == "Random",
            broker=broker is not None,
            write_priority=write_priority,
        )
        services.idle.connect(distributor.deliver)
        session_index = SessionIndex()
        attestor = Attestor(keys=supervisors.keys, accounts_proven=settings.accounts_proven)
        self.pools = PoolRegistry(
            services=services,
            sessions=session_index,
            nodes=shared.nodes,
            template_prefixes=settings.template_prefixes,
            times=PodTimes(start_timeout=settings.pod_start_timeout_seconds, seal_after=settings.seal_after_seconds),
        )
        self.tool_servers: ToolServerComponent | None = None
        if broker is not None:
            self.tool_servers = ToolServerComponent(
                settings=settings,
                kube=kube,
                broker=broker,
                keys=supervisors.keys,
                distributor=distributor,
                warm_pods=self.pools.warm_pods,
                metrics=metrics,
                tasks=self.tasks,
            )
        self.skills = SkillComponent(
            kube=kube,
            api=api,
            namespaces=settings.namespaces,
            attestor=attestor,
            folders=read_folders(Path(settings.skills_folder)) if settings.skills_folder else (),
        )
        records = RecordsClient(broker.client) if settings.records and broker is not None else None
        callers = CallerProofs(attestor=attestor)
        self.recorder: ExecutionRecorder | None = None
        if records is not None:
            self.recorder = ExecutionRecorder(
                receiver=records, api=api, callers=callers, code=settings.records_code, metrics=metrics
            )
        self.rollouts = RolloutComponent(
            kube=kube,
            api=api,
            namespaces=settings.namespaces,
            pools=self.pools,
            metrics=shared.rollout_metrics,
            reader=None if records is None else RecordsReader(records=records),
        )
        self.ttl = TTLController(
            api=api,
            max_seconds=settings.max_ttl_seconds,
            recorder=self.recorder,
            budget=StoredBudget(max_stored=settings.max_stored, max_stored_bytes=settings.max_stored_bytes),
        )
        self.ttl.deleted_early.connect(EarlyDeletions(api=api, tasks=self.tasks, metrics=metrics).report)
        self.sessions = SessionComponent.create(
            namespace=namespace,
            settings=settings,
            api=api,
            index=session_index,
            pools=self.pools,
            attestor=attestor,
            supervisors=supervisors,
            tasks=self.tasks,
            write_priority=write_priority,
        )
        features = (
            Sessions(claims=self.sessions.claims, writer=writer),
            CodeChecks(pools=self.pools, metrics=metrics),
            Tools(broker=broker, distributor=distributor, writer=writer, tasks=self.tasks),
            Skills(component=self.skills, tasks=self.tasks),
            Files(broker=broker, writer=writer, tasks=self.tasks),
        )
        lifecycle = ExecutionLifecycle(
            api=api,
            pools=self.pools,
            binder=Binder(
                pools=self.pools,
                writer=writer,
                features=features,
                supervisors=supervisors,
                bind_timeout_seconds=settings.bind_timeout_seconds,
            ),
            writer=writer,
            supervisors=supervisors,
            specs=shared.specs,
            features=features,
            ttl=self.ttl,
            tasks=self.tasks,
            metrics=metrics,
        )
        self.executions = ExecutionController(
            lifecycle=lifecycle,
            pools=self.pools,
            sessions=self.sessions.registry,
            writer=writer,
            callers=callers,
            specs=shared.specs,
            ttl=self.ttl,
            tasks=self.tasks,
            metrics=metrics,
        )
        self.resync = Resync(
            api=api,
            pools=self.pools,
            sessions=self.sessions.registry,
            executions=self.executions,
            metrics=metrics,
            namespace=namespace,
            pace=shared.pace,
            suspect=shared.suspect,
        )

    def observe(self, kind: Kind, body: Object, deleted: bool) -> None:
        """Handle a watch event of an object of this kind."""
        match kind:
            case "execution":
                self.executions.observe(body, deleted=deleted)
            case "session":
                self.sessions.registry.observe(body, deleted=deleted)
            case "pool":
                self.pools.observe_pool(body, deleted=deleted)
            case "pod":
                self.pools.observe_pod(body, deleted=deleted)
            case "policy":
                self.pools.observe_policy(body, deleted=deleted)
                if self.tool_servers is not None:
                    self.tool_servers.controller.observe_policy(body, deleted=deleted)

    def observe_deletion(self, deleting: bool) -> None:
        """End the sandboxes if the namespace is being deleted, and serve it if it was created again."""
        namespace = self.namespace
        if not deleting:
            if namespace in self.pools.closed:
                self.skills.shipped.request(namespace)
            self.pools.closed.discard(namespace)
        elif namespace not in self.pools.closed:
            log.warning("the namespace is being deleted: its executions are cancelled", extra={"namespace": namespace})
            self.executions.cancel_namespace(namespace)
            self.sessions.registry.release_namespace(namespace)
            self.pools.close_namespace(namespace)

    def end_withdrawn(self) -> None:
        """End what lives by a key that is not accepted any more."""
        self.executions.cancel_withdrawn()
        self.sessions.registry.check_proofs()
        self.skills.read_again()

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
            async with (
                self.tool_servers.running() if self.tool_servers is not None else nullcontext(),
                self.skills.running(),
                self.rollouts.watching(),
            ):
                # before the first resync: what is expired is deleted even if that never ends
                loops += [
                    self.tasks.spawn(self.ttl.run(), name="ttl"),
                    self.tasks.spawn(self.skills.controller.run(), name="skills"),
                    self.tasks.spawn(self.skills.shipped.run(), name="shipped skills"),
                ]
                if self.recorder is not None:
                    loops.append(self.tasks.spawn(self.recorder.run(), name="records"))
                try:
                    await self.resync.begin()
                    await self.rollouts.prepare()
                    self.pools.open()
                    loops += [
                        self.tasks.spawn(self.resync.run(), name="resync"),
                        self.tasks.spawn(self.sessions.controller.run(), name="sessions"),
                        self.tasks.spawn(self.rollouts.controller.run(), name="rollouts"),
                    ]
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
        if self.tool_servers is not None:
            self.tool_servers.close()
        await self.tasks.close(grace_seconds=self.shutdown_seconds)

    def _discard_measures(self) -> None:
        """Drop the series of the namespace, and what the pace of resyncs counts for it."""
        self.shared.metrics.drop(namespace=self.namespace)
        self.shared.rollout_metrics.discard_namespace(self.namespace)
        self.shared.pace.durations.pop(self.namespace, None)
        if self.recorder is not None:
            self.recorder.close()
