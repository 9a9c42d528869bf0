"""One operator process: leader election, then watches and controllers, their shutdown in order, and its HTTP server."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, Final, Protocol

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from mcp_exec_api.constants import POOLS, SESSIONS, SUPERVISOR_PORT
from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.process.connections import ConnectionLimits, ConnectionTable
from mcp_exec_common.process.health import HealthReport, report_liveness, report_readiness
from mcp_exec_common.process.namespaces import read_namespaces
from mcp_exec_common.process.setup import exempt_started_objects
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_operator.cluster.definitions import Definitions
from mcp_exec_operator.cluster.keys.release import ReleaseKeys
from mcp_exec_operator.cluster.kube.followers import follow_nodes
from mcp_exec_operator.cluster.leader_election import LeaderElector
from mcp_exec_operator.cluster.namespaces.claims import NamespaceClaims
from mcp_exec_operator.cluster.namespaces.membership import NamespaceMembership
from mcp_exec_operator.cluster.preflight import CannotStart, answering, check_api, check_definitions
from mcp_exec_operator.manager import Manager
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.settings import Settings


class ProbeConnection(asyncio.Protocol):
    """Connection of a probe. It is aborted when its time is over, whatever its client sends or reads.

    Requests and responses are short, so one deadline for the whole connection replaces those of heads and bodies, which
    aiohttp lacks. Prometheus opens a new connection then.
    """

    def __init__(self, handler: asyncio.Protocol, *, table: ConnectionTable) -> None:
        self._handler = handler
        self._table = table
        self._peer = ""
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or abort it if there is no room for it."""
        self._transport = transport
        self._peer = str((transport.get_extra_info("peername") or ("",))[0])
        limits = self._table.limits
        seconds = limits.head_seconds + limits.write_seconds
        self._deadline = asyncio.get_running_loop().call_later(seconds, transport.abort)
        self._handler.connection_made(transport)
        if not self._table.admit(self, self._peer):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the connection."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._table.remove(self, self._peer)
        self._handler.connection_lost(exc)

    def close_idle(self) -> None:
        """Close the connection for the benefit of a new one."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Handle received data."""
        self._handler.data_received(data)

    def eof_received(self) -> bool | None:
        """Handle the end of the received data."""
        return self._handler.eof_received()

    def pause_writing(self) -> None:
        """Pause the response."""
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        """Resume the response."""
        self._handler.resume_writing()


class HealthSource(Protocol):
    """Knows how the process is."""

    def find_liveness_problem(self) -> str:
        """Return why the process should be restarted, or an empty text."""

    def find_readiness_problem(self) -> str:
        """Return why the process is not ready, or an empty text."""

    def describe_role(self) -> dict[str, str]:
        """Return the role of the process, and the leader if it is another, as the body of `/readyz` has them."""


@dataclass(frozen=True, kw_only=True)
class HealthServer:
    """Serves `/healthz`, `/readyz` and `/metrics`. A response of any kind shows that the event loop runs."""

    source: HealthSource
    registry: CollectorRegistry | None
    """The metrics; None if they are not served."""
    limits: ConnectionLimits

    @asynccontextmanager
    async def serving(self, port: int, *, host: str | None = None) -> AsyncIterator[int]:
        """Serve while the context lasts. Yields the port, which is a free one if `port` is 0."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                *([web.get("/metrics", self._metrics)] if self.registry is not None else []),
            ]
        )
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        build_handler, table = runner.server, ConnectionTable(self.limits)
        assert build_handler is not None  # noqa: S101 - `setup` has created it
        server = await asyncio.get_running_loop().create_server(
            lambda: ProbeConnection(build_handler(), table=table), host, port, backlog=128
        )
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            await runner.cleanup()

    async def _healthz(self, request: web.Request) -> web.Response:
        return _build_response(report_liveness(_list_problem(self.source.find_liveness_problem())))

    async def _readyz(self, request: web.Request) -> web.Response:
        missing = _list_problem(self.source.find_readiness_problem())
        return _build_response(report_readiness(missing, stopping=False, **self.source.describe_role()))

    async def _metrics(self, request: web.Request) -> web.Response:
        assert self.registry is not None  # noqa: S101 - there is no route without it
        return web.Response(body=generate_latest(self.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _list_problem(problem: str) -> list[str]:
    return [problem] if problem else []


def _build_response(report: HealthReport) -> web.Response:
    return web.json_response(report.body, status=report.status_code)


log = logging.getLogger(__name__)

STUCK_SECONDS: Final = 180.0
"""How long a resync may take before the operator is restarted."""
FAILING_SECONDS: Final = 300.0
"""How long resyncs may fail before the operator is restarted."""
_ABORT_SECONDS: Final = 0.5
"""How long the process lives at most after it lost the lease. Its tasks are cancelled at once."""


async def run_operator(settings: Settings, *, sandbox_port: int = SUPERVISOR_PORT) -> None:
    """Run the operator until SIGTERM or SIGINT. Raises CannotStart and LeaseLost."""
    metrics = Metrics()
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(KubeClient.connect(kubeconfig=settings.kubeconfig))
        await check_definitions(kube, wait_seconds=settings.api_wait_seconds)
        if settings.upgrade_crds:
            await Definitions(kube=kube, wait_seconds=settings.api_wait_seconds).upgrade()
        keys = await ReleaseKeys(settings=settings, kube=kube, metrics=metrics).obtain_sandbox_keys()
        supervisors = await stack.enter_async_context(SupervisorClient.connect(keys=keys, port=sandbox_port))
        claims = NamespaceClaims.of(settings, kube=kube)
        membership = NamespaceMembership(kube=kube, claims=claims, metrics=metrics, named=settings.namespaces)
        manager = Manager(settings=settings, kube=kube, supervisors=supervisors, metrics=metrics, membership=membership)
        elector = LeaderElector.create(settings=settings, kube=kube, metrics=metrics)
        await OperatorProcess(settings=settings, kube=kube, manager=manager, elector=elector).run()


@dataclass(frozen=True, kw_only=True)
class OperatorHealth:
    """The health of an operator. A standby is healthy, since it reconciles nothing, and ready to take over."""

    manager: Manager
    elector: LeaderElector
    stuck_seconds: float
    failing_seconds: float

    def find_liveness_problem(self) -> str:
        """Return why resyncs fail or make no progress, or an empty text."""
        if not self.elector.is_leader:
            return ""
        return self.manager.find_problem(stuck_seconds=self.stuck_seconds, failing_seconds=self.failing_seconds)

    def find_readiness_problem(self) -> str:
        """Return why the operator serves no namespace, or neither reconciles nor could take over, or an empty text."""
        if problem := self.manager.membership.describe_refusals():
            return problem
        return self.manager.find_unready() if self.elector.is_leader else self.elector.problem

    def describe_role(self) -> dict[str, str]:
        """Return whether this operator leads, or who does."""
        return {"role": "leader"} if self.elector.is_leader else {"role": "standby", "leader": self.elector.holder}


@dataclass(kw_only=True, eq=False)
class OperatorProcess:
    """The parts of one operator process."""

    settings: Settings
    kube: KubeClient
    manager: Manager
    elector: LeaderElector
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by SIGTERM and SIGINT."""

    def build_health_server(
        self, *, stuck_seconds: float = STUCK_SECONDS, failing_seconds: float = FAILING_SECONDS
    ) -> HealthServer:
        """Return the health server."""
        return HealthServer(
            source=OperatorHealth(
                manager=self.manager,
                elector=self.elector,
                stuck_seconds=stuck_seconds,
                failing_seconds=failing_seconds,
            ),
            registry=self.manager.metrics.registry if self.settings.metrics else None,
            limits=self.settings.connection_limits,
        )

    async def run(self) -> None:
        """Run until `stop` is set. Raises CannotStart and LeaseLost."""
        self._handle_signals()
        membership, loop = self.manager.membership, asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.build_health_server().serving(self.settings.port))
            await stack.enter_async_context(answering(self.settings.isolation_port))
            await check_api(
                self.kube, watch_nodes=self.settings.watch_nodes, wait_seconds=self.settings.api_wait_seconds
            )
            await membership.check()
            checking = loop.create_task(membership.run(), name="served namespaces")
            stack.callback(checking.cancel)
            if (folder := self.settings.mounted_namespaces) is not None:
                following = loop.create_task(folder.follow(self._follow), name="named namespaces")
                stack.callback(following.cancel)
            if await self._wait_until_leader():
                await self._lead()

    async def _wait_until_leader(self) -> bool:
        """Wait until this operator is the leader. Return False if `stop` is set earlier."""

        async def elect() -> None:
            if not await self.elector.try_acquire_or_renew():
                await _import_watches()
                await self.elector.wait_until_leader()

        loop = asyncio.get_running_loop()
        electing = loop.create_task(elect(), name="election")
        stopping = loop.create_task(self.stop.wait(), name="stopping")
        await asyncio.wait({electing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if electing.done() and not self.stop.is_set():
            electing.result()
            return True
        electing.cancel()
        await asyncio.gather(electing, return_exceptions=True)
        await self.elector.release()  # it may have been acquired just now
        return False

    async def _lead(self) -> None:
        """Reconcile until `stop` is set, and release the lease once all writes have ended. Raises LeaseLost."""
        async with AsyncExitStack() as stack:
            lease = await stack.enter_async_context(self.elector.holding())
            work = asyncio.get_running_loop().create_task(self._reconcile(stack), name="work")
            await asyncio.wait({lease, work}, return_when=asyncio.FIRST_COMPLETED)
            if lease.done() and not lease.cancelled() and not work.done():
                self.manager.abort()
                log.error("the lease is lost, and all tasks are cancelled: %s", lease.exception())
                work.cancel()
                await asyncio.wait({work}, timeout=_ABORT_SECONDS)
                lease.result()
            await work

    async def _reconcile(self, stack: AsyncExitStack) -> None:
        """Run the manager, and its watches until `stop` is set. `stack` ends the manager, then the lease."""
        await stack.enter_async_context(self.manager.running())
        await _import_watches()  # executions that wait are served meanwhile
        from mcp_exec_operator.cluster.kube.watches import build_registry

        observe = self.manager.observe
        registry = build_registry(
            credentials=self.kube.credentials,
            on_event={
                POOLS: partial(observe, "pool"),
                SESSIONS: partial(observe, "session"),
            },
            on_new_watch=self.manager.request_resync,
        )
        nodes = follow_nodes(kube=self.kube, on_node=partial(observe, "node"))
        async with nodes if self.settings.watch_nodes else nullcontext():
            await self._watch(registry, stack)

    async def _watch(self, registry: Any, stack: AsyncExitStack) -> None:
        """Run kopf until `stop` is set. Events arrive until `stack` is closed."""
        from mcp_exec_operator.cluster.kube.watches import watching

        async with watching(registry=registry, namespaces=self.manager.watched) as watches:
            self._handle_signals()  # kopf's handlers would end its watches before the manager
            stopping = asyncio.create_task(self.stop.wait(), name="stopping")
            try:
                exempt_started_objects()
                log.info("the operator is reconciling", extra={"namespaces": list(self.manager.watched)})
                await asyncio.wait({watches, stopping}, return_when=asyncio.FIRST_COMPLETED)
                log.info("the operator is stopping")
                ended_early = not self.stop.is_set()
            finally:
                stopping.cancel()
                await stack.aclose()
        if ended_early:
            raise CannotStart("the watches have ended")

    def _follow(self, entries: Mapping[str, bytes]) -> None:
        names = read_namespaces(entries, release_namespace=self.settings.release_namespace)
        self.manager.membership.name(names)

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop.set)


async def _import_watches() -> None:
    """Import kopf in a thread, which takes longer than a resync."""
    await asyncio.to_thread(import_module, "mcp_exec_operator.cluster.kube.watches")
