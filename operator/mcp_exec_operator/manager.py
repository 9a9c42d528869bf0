"""The manager: builds all controllers, feeds them with watch events, and runs them while this operator leads."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.broker.records import RecordsClient
from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.skills.folder import read_folders
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_operator.executions.binder import Binder
from mcp_exec_operator.executions.controller import ExecutionController
from mcp_exec_operator.executions.features.checks import CodeChecks, Skills
from mcp_exec_operator.executions.features.files import Files
from mcp_exec_operator.executions.features.sessions import Sessions
from mcp_exec_operator.executions.features.tools import Tools
from mcp_exec_operator.executions.lifecycle import ExecutionLifecycle
from mcp_exec_operator.executions.specs import SpecCache
from mcp_exec_operator.executions.writer import ExecutionStatusWriter
from mcp_exec_operator.keys.release import ReleaseKeys
from mcp_exec_operator.kube.api import OperatorApi, WritePriority
from mcp_exec_operator.kube.observations import CallerProofs
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.pods.authenticity import PodAuthenticator
from mcp_exec_operator.pods.manifest import IsolationAddresses
from mcp_exec_operator.pods.network_policy import ReleasePods
from mcp_exec_operator.pools.registry import PoolRegistry
from mcp_exec_operator.pools.reviews import PodTimes
from mcp_exec_operator.pools.services import PoolServices
from mcp_exec_operator.preflight import find_forbidden_addresses
from mcp_exec_operator.records import ExecutionRecorder
from mcp_exec_operator.removal import RemovedNamespaces
from mcp_exec_operator.resync import Resync
from mcp_exec_operator.rollouts.controller import RolloutComponent
from mcp_exec_operator.rollouts.measures import RecordsReader
from mcp_exec_operator.sessions.controller import SessionComponent
from mcp_exec_operator.sessions.registry import SessionIndex
from mcp_exec_operator.settings import Settings
from mcp_exec_operator.skills.controller import SkillComponent
from mcp_exec_operator.toolservers.component import BrokerDiscovery, ToolServerComponent
from mcp_exec_operator.toolservers.wrappers import NamespaceBundle, WrapperDistributor
from mcp_exec_operator.ttl import EarlyDeletions, StoredBudget, TTLController

log = logging.getLogger(__name__)


Kind = Literal["execution", "session", "pool", "pod", "policy", "node"]
"""Kinds of objects whose watch events the manager takes in. They are labels of a metric."""


class Manager:
    """All controllers. The `observe` methods take watch events and never wait."""

    def __init__(
        self,
        *,
        settings: Settings,
        kube: KubeClient,
        supervisors: SupervisorClient,
        metrics: Metrics,
        refused: frozenset[str] = frozenset(),
    ) -> None:
        """Build all controllers. Nothing runs yet. `refused` are namespaces of the release that are not served now."""
        self.metrics, self.tasks = metrics, TaskRegistry()
        self.sandbox_keys = supervisors.keys
        self.sandbox_keys.changed.connect(self._apply_new_keys)
        self.sandbox_keys.withdrawn.connect(self._end_withdrawn)
        self.shutdown_seconds = settings.shutdown_seconds
        self.keys = ReleaseKeys(settings=settings, kube=kube, metrics=metrics)
        self.removed: RemovedNamespaces | None = None
        if settings.service_account:
            self.removed = RemovedNamespaces(settings=settings, kube=kube, refused=refused)
        api, write_priority = OperatorApi(kube=kube, metrics=metrics), WritePriority()
        writer = ExecutionStatusWriter(api=api, priority=write_priority, tasks=self.tasks)
        broker = _discover_broker(settings, kube, supervisors)
        distributor = WrapperDistributor(
            sandboxes=supervisors,
            tasks=self.tasks,
            write_priority=write_priority,
            bundles={namespace: NamespaceBundle() for namespace in settings.namespaces},
        )
        services = PoolServices(
            api=api,
            supervisors=supervisors,
            authenticator=PodAuthenticator(keys=supervisors.keys),
            tasks=self.tasks,
            metrics=metrics,
            release=ReleasePods.of(settings),
            isolation=_choose_addresses(settings, kube, broker),
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
            reader=None if records is None else RecordsReader(records=records),
        )
        self.ttl = TTLController(
            api=api,
            max_seconds=settings.max_ttl_seconds,
            recorder=self.recorder,
            budget=StoredBudget(max_stored=settings.max_stored, max_stored_bytes=settings.max_stored_bytes),
        )
        self.ttl.deleted_early.connect(EarlyDeletions(api=api, tasks=self.tasks, metrics=metrics).report)
        specs = SpecCache(api=api)
        self.sessions = SessionComponent.create(
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
            specs=specs,
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
            specs=specs,
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
            namespaces=settings.namespaces,
            interval_seconds=settings.resync_seconds,
        )

    def observe(self, kind: Kind, body: Object, deleted: bool) -> None:
        """Take in a watch event of an object of this kind."""
        self.metrics.events.labels(kind).inc()
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
            case "node":
                self.pools.observe_node(body, deleted=deleted)

    def observe_namespace(self, namespace: str, deleting: bool) -> None:
        """End the sandboxes of a namespace that is being deleted, and serve one that was created again."""
        if not deleting:
            if namespace in self.pools.closed:
                self.skills.shipped.request(namespace)
            self.pools.closed.discard(namespace)
        elif namespace not in self.pools.closed:
            log.warning("the namespace is being deleted: its executions are cancelled", extra={"namespace": namespace})
            self.executions.cancel_namespace(namespace)
            self.sessions.registry.release_namespace(namespace)
            self.pools.close_namespace(namespace)

    def observe_node(self, body: Object, deleted: bool) -> None:
        """Take in a watch event of a node."""
        self.metrics.events.labels("node").inc()
        self.pools.observe_node(body, deleted=deleted)

    def _apply_new_keys(self) -> None:
        """Replace warm pods of a former key. Stdio servers get their tokens at their next reconcile."""
        for pool in self.pools:
            pool.wakeup.set()

    def _end_withdrawn(self) -> None:
        """End what lives by a key that is not accepted any more. After an ordinary rotation there is nothing."""
        self.executions.cancel_withdrawn()
        self.sessions.registry.check_proofs()
        self.skills.read_again()

    def abort(self) -> None:
        """Cancel everything at once, writes too, because another operator may be about to lead."""
        self.shutdown_seconds = 0.0
        self.tasks.cancel_all()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Resync, then reconcile while the context lasts, then let writes in flight end.

        Raises ApiError if the sandbox keys can't be read or the first resync fails.
        """
        await self.keys.refresh(self.sandbox_keys)
        self.resync.restart_clock()
        async with (
            self.tool_servers.running() if self.tool_servers is not None else nullcontext(),
            self.skills.running(),
            self.rollouts.watching(),
        ):
            # before the first resync: what is expired is deleted even if that never ends
            loops = [
                self.tasks.spawn(self.ttl.run(), name="ttl"),
                self.tasks.spawn(self.skills.controller.run(), name="skills"),
                self.tasks.spawn(self.skills.shipped.run(), name="shipped skills"),
            ]
            if self.removed is not None:
                loops.append(self.tasks.spawn(self.removed.run(), name="removed namespaces"))
            if self.recorder is not None:
                loops.append(self.tasks.spawn(self.recorder.run(), name="records"))
            try:
                await self.keys.check(self.sandbox_keys, renews=False)
                loops.append(self.tasks.spawn(self.keys.run(self.sandbox_keys), name="keys"))
                await self.resync.resync()
                await self.rollouts.prepare()
                self.pools.open()
                loops.append(self.tasks.spawn(self.resync.run(), name="resync"))
                loops.append(self.tasks.spawn(self.sessions.controller.run(), name="sessions"))
                loops.append(self.tasks.spawn(self.rollouts.controller.run(), name="rollouts"))
                yield
            finally:
                for loop in loops:
                    loop.cancel()
                await self.pools.close()
                await self.executions.close(grace_seconds=self.shutdown_seconds)
                if self.tool_servers is not None:
                    self.tool_servers.close()
                await self.tasks.close(grace_seconds=self.shutdown_seconds)


def _choose_addresses(
    settings: Settings, kube: KubeClient, broker: BrokerDiscovery | None
) -> Callable[[], IsolationAddresses]:
    """Return a function, because the broker's address is known only after the start."""
    forbidden: tuple[str, ...] = ()
    if settings.verify_isolation:
        own_ips = settings.pod_ips.split(",") if settings.pod_ips else ()
        forbidden = find_forbidden_addresses(kube.credentials.address(), own_ips=own_ips, own_port=settings.port)

    def choose() -> IsolationAddresses:
        replica = broker.choose_replica("") if broker is not None else None
        return IsolationAddresses(forbidden=forbidden, answering=urlsplit(replica.url).netloc if replica else "")

    return choose


def _discover_broker(settings: Settings, kube: KubeClient, supervisors: SupervisorClient) -> BrokerDiscovery | None:
    if not settings.broker_service:
        return None
    return BrokerDiscovery.create(
        kube=kube,
        session=supervisors.broker_session,
        keys=supervisors.keys,
        namespace=settings.release_namespace,
        service=settings.broker_service,
    )
