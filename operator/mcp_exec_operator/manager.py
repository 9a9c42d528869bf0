"""The manager of a release: the managers of its served namespaces, which come and go, and what they have in common."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.process.namespaces import ServedNamespaces
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_operator.cluster.broker import BrokerDiscovery
from mcp_exec_operator.cluster.keys.release import ReleaseKeys
from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.cluster.kube.followers import follow_namespace
from mcp_exec_operator.cluster.namespaces.membership import NamespaceMembership
from mcp_exec_operator.cluster.preflight import find_forbidden_addresses
from mcp_exec_operator.core.executions.specs import SpecCache
from mcp_exec_operator.core.pods.manifest import IsolationAddresses
from mcp_exec_operator.core.removal import RemovedNamespaces
from mcp_exec_operator.core.resync import ResyncPace
from mcp_exec_operator.features import FEATURES
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.namespace import Kind, NamespaceManager, SharedParts
from mcp_exec_operator.settings import Settings

log = logging.getLogger(__name__)

_RESTART_SECONDS: Final = 5.0
"""Pause after the manager of a namespace has failed, which is a fault of the operator."""


class Manager:
    """Runs a manager for each served namespace while this operator leads. The `observe` methods never wait."""

    def __init__(
        self,
        *,
        settings: Settings,
        kube: KubeClient,
        supervisors: SupervisorClient,
        metrics: Metrics,
        membership: NamespaceMembership,
    ) -> None:
        """Build what namespaces have in common. Nothing runs yet."""
        self.kube, self.metrics, self.membership, self.tasks = kube, metrics, membership, TaskRegistry()
        self.sandbox_keys = supervisors.keys
        self.sandbox_keys.changed.connect(self._apply_new_keys)
        self.sandbox_keys.withdrawn.connect(self._end_withdrawn)
        self.keys = ReleaseKeys(
            settings=settings,
            kube=kube,
            metrics=metrics,
            served=membership.served,
            named=lambda: membership.named,
        )
        api, self.broker = OperatorApi(kube=kube, metrics=metrics), _discover_broker(settings, kube, supervisors)
        self.shared = SharedParts(
            settings=settings,
            kube=kube,
            supervisors=supervisors,
            metrics=metrics,
            api=api,
            specs=SpecCache(api=api),
            pace=ResyncPace(interval_seconds=settings.resync_seconds),
            broker=self.broker,
            isolation=_choose_addresses(settings, kube, self.broker),
            suspect=membership.suspect,
        )
        for feature in FEATURES.values():
            if feature.metrics_class is not None:
                metrics.of(feature.metrics_class)  # a process that stands by serves them, too
        self.namespaces: dict[str, NamespaceManager] = {}
        self.watched = ServedNamespaces(())
        """Namespaces whose resources are to be watched: those whose first resync has succeeded."""
        self.removed: RemovedNamespaces | None = None
        if settings.service_account:
            self.removed = RemovedNamespaces(
                settings=settings, kube=kube, named=lambda: membership.named, running=lambda: self._services.keys()
            )
            membership.renamed.connect(self.removed.changed)
            self.removed.ended.connect(self._follow)
        self._services: dict[str, asyncio.Task[None]] = {}
        """The task of each namespace."""
        self._ending: set[str] = set()
        """Namespaces whose task is cancelled, and lets writes in flight end."""
        self._leads = False
        membership.served.changed.connect(self._follow)

    def observe(self, kind: Kind, body: Object, deleted: bool) -> None:
        """Handle a watch event of an object of this kind."""
        self.metrics.events.labels(kind).inc()
        if kind == "node":
            if (name := self.shared.nodes.observe(body, deleted=deleted)) is not None:
                for each in self.namespaces.values():
                    each.pools.recheck_node(name)
        elif (manager := self.namespaces.get(body["metadata"]["namespace"])) is not None:
            manager.observe(kind, body, deleted)

    def request_resync(self, namespace: str) -> None:
        """Resync a namespace at once: a watch in it begins again."""
        if (manager := self.namespaces.get(namespace)) is not None:
            manager.resync.request()

    def find_problem(self, *, stuck_seconds: float, failing_seconds: float) -> str:
        """Return why a restart could help, or an empty text.

        Resyncs that fail in some namespaces only are no reason: a restart would end the service of the others.
        """
        resyncs = [each.resync for each in self.namespaces.values()]
        stalls = filter(None, (each.find_stall(stuck_seconds=stuck_seconds) for each in resyncs))
        if stall := next(stalls, ""):
            return stall
        failures = [each.find_failure(failing_seconds=failing_seconds) for each in resyncs]
        return failures[0] if failures and all(failures) else ""

    def find_unready(self) -> str:
        """Return what the leader has not done yet, or an empty text."""
        if problem := self.membership.describe_refusals():
            return problem
        has_begun = self._leads and all(each.resync.tried.is_set() for each in self.namespaces.values())
        return "" if has_begun else "the first resync has not ended"

    def _end_withdrawn(self) -> None:
        """End what lives by a key that is not accepted any more. After an ordinary rotation there is nothing."""
        for each in self.namespaces.values():
            each.end_withdrawn()

    def abort(self) -> None:
        """Cancel everything at once, writes too, because another operator may be about to lead."""
        self.tasks.cancel_all()
        for each in self.namespaces.values():
            each.abort()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve the namespaces while the context lasts, from their first resync on, then let writes in flight end.

        Raises ApiError if the sandbox keys can't be read.
        """
        await self.keys.refresh(self.sandbox_keys)
        async with AsyncExitStack() as stack:
            if self.broker is not None:
                await stack.enter_async_context(self.broker.following())
            stack.push_async_callback(self.tasks.close)
            await self.keys.check(self.sandbox_keys, renews=False)
            self.tasks.spawn(self.keys.run(self.sandbox_keys), name="keys")
            if self.removed is not None:
                self.tasks.spawn(self.removed.run(), name="removed namespaces")
            stack.push_async_callback(self._end_all)
            self._leads = True
            self._follow()
            for each in [*self.namespaces.values()]:
                await each.resync.tried.wait()
            yield

    def _follow(self) -> None:
        """Begin and end the service of namespaces, so that those are served that should be.

        A namespace that returns before its service has ended begins again after that.
        """
        served = set(self.membership.served) if self._leads else set()
        if self.removed is not None:
            served -= self.removed.removing
        for namespace in self._services.keys() - served - self._ending:
            self._ending.add(namespace)
            self._services[namespace].cancel()
        for namespace in served - self._services.keys():
            self.namespaces[namespace] = manager = NamespaceManager(namespace, shared=self.shared)
            self._services[namespace] = task = self.tasks.spawn(self._serve(manager), name=f"namespace {namespace}")
            task.add_done_callback(partial(self._note_end, namespace))

    async def _serve(self, manager: NamespaceManager) -> None:
        following = follow_namespace(
            kube=self.kube,
            namespace=manager.namespace,
            on_execution=partial(self.observe, "execution"),
            on_begin=manager.resync.request,
            on_pod=partial(self.observe, "pod"),
            on_policy=partial(self.observe, "policy"),
            on_deletion=manager.observe_deletion,
            on_label=partial(self._observe_label, manager.namespace),
        )
        async with manager.running(), following:
            self.watched.add(manager.namespace)
            try:
                await asyncio.Event().wait()
            finally:
                self.watched.remove(manager.namespace)

    def _observe_label(self, namespace: str, label: str) -> None:
        """Check at once whether another release has the namespace now."""
        if label not in ("", self.shared.settings.release_label):
            self.membership.suspect(namespace)

    def _note_end(self, namespace: str, task: "asyncio.Task[None]") -> None:
        self.namespaces[namespace].resync.tried.set()  # a task that is cancelled before its first step does not
        del self._services[namespace], self.namespaces[namespace]
        self._ending.discard(namespace)
        if self.removed is not None:
            self.removed.changed()
        if task.cancelled():
            self._follow()
        else:
            asyncio.get_running_loop().call_later(_RESTART_SECONDS, self._follow)

    async def _end_all(self) -> None:
        self._leads = False
        self._follow()
        await asyncio.gather(*self._services.values(), return_exceptions=True)

    def _apply_new_keys(self) -> None:
        """Replace warm pods of a former key. Stdio servers get their tokens at their next reconcile."""
        for each in self.namespaces.values():
            for pool in each.pools:
                pool.changed()


def _choose_addresses(
    settings: Settings, kube: KubeClient, broker: BrokerDiscovery | None
) -> Callable[[], IsolationAddresses]:
    """Return a function, because the broker's address is known only after the start."""
    forbidden: tuple[str, ...] = ()
    if settings.verify_isolation:
        own_ips = settings.pod_ips.split(",") if settings.pod_ips else ()
        forbidden = find_forbidden_addresses(
            kube.credentials.address(), own_ips=own_ips, own_port=settings.isolation_port
        )

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
