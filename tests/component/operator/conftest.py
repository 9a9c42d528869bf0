"""The operator on a cluster of its own, with watches that stand in for kopf's of pools and sessions."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from time import monotonic
from typing import Any, TypeVar

import aiohttp
import pytest
from tests.support.pace import paced
from tests.support.until import until
from tests.support.world import KEY, KEY_SECRET, NAMESPACE, NODES, SBP, SBS, World

from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.credentials import KubeCredentials
from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_common.process.namespaces import ServedNamespaces
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_operator.cluster.leader_election import LeaderElector
from mcp_exec_operator.cluster.namespaces.claims import NamespaceClaims
from mcp_exec_operator.cluster.namespaces.membership import NamespaceMembership
from mcp_exec_operator.core.feature import Feature
from mcp_exec_operator.core.pools import status as pool_status
from mcp_exec_operator.manager import Manager
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.namespace import Kind, NamespaceManager
from mcp_exec_operator.settings import Settings

Operating = Callable[..., Any]
F = TypeVar("F", bound=Feature)


def settings(**changes: Any) -> Settings:
    given = {
        "namespaces": (NAMESPACE,),
        "release_namespace": "mcp-exec-system",
        "release_secrets": ("release-key",),
        "sandbox_key_secret": KEY_SECRET,
        "accounts_proven": True,
        "resync_seconds": 0.1,
        "shutdown_seconds": 5,
        "seal_after_seconds": 0,
    }
    return Settings(**(given | changes))


class Operator:
    """One process of the operator, as far as a test can have one."""

    def __init__(self, world: World, made: Settings) -> None:
        self.world = world
        self.settings = made
        self.metrics = Metrics()
        self.manager: Manager
        self.kube: KubeClient
        self._stack = AsyncExitStack()
        self.sessions: list[aiohttp.ClientSession] = []

    async def start(self) -> None:
        api = aiohttp.ClientSession(base_url=self.world.url)
        self.sessions.append(api)
        self.kube = kube = KubeClient(
            session=api, credentials=KubeCredentials(server=""), retry_delays=(0.001, 0.01), timeout_seconds=5
        )
        supervisors = await self._stack.enter_async_context(
            SupervisorClient.connect(keys=SandboxKeys(KEY), port=self.world.port)
        )
        self.sessions += [supervisors.session, supervisors.broker_session]
        membership = NamespaceMembership(
            kube=kube,
            claims=NamespaceClaims.of(self.settings, kube=kube),
            metrics=self.metrics,
            named=self.settings.namespaces,
            served=ServedNamespaces(self.settings.namespaces),
        )
        self.manager = Manager(
            settings=self.settings, kube=kube, supervisors=supervisors, metrics=self.metrics, membership=membership
        )
        await self._stack.enter_async_context(self.manager.running())
        kinds: dict[str, Kind] = {SBP: "pool", SBS: "session", NODES: "node"}
        for path, kind in kinds.items():
            reflector = Reflector(kube=kube, path=path, on_change=partial(self.manager.observe, kind))
            await self._stack.enter_async_context(reflector.run_in_background())

    @property
    def part(self) -> NamespaceManager:
        """The manager of the namespace of these tests."""
        return self.manager.namespaces[NAMESPACE]

    def feature(self, kind: type[F]) -> F:
        """A feature of that namespace."""
        return self.part.feature(kind)

    async def stop(self) -> None:
        """As SIGTERM does."""
        await self._stack.aclose()
        for session in self.sessions:
            await session.close()

    def writes(self) -> dict[str, float]:
        """Writes to the API server so far, by what they were."""
        return {
            sample.labels["what"]: sample.value
            for sample in self.metrics.writes.collect()[0].samples
            if sample.name.endswith("_total")
        }


@pytest.fixture(autouse=True)
def prompt_pool_status(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pools write what changed at once, not up to a second later. Tests wait for it, and count no writes of pools."""
    monkeypatch.setattr(pool_status, "_SETTLE_SECONDS", 0.05)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World().up() as made:
        yield made


@pytest.fixture
def operating(world: World) -> Callable[..., Any]:
    """Runs an operator while a context stands."""

    @asynccontextmanager
    async def run(**changes: Any) -> AsyncIterator[Operator]:
        operator = Operator(world, settings(**changes))
        try:
            await operator.start()
            yield operator
        finally:
            await operator.stop()

    return run


@pytest.fixture
async def contend(world: World) -> AsyncIterator[Callable[..., LeaderElector]]:
    """Makes operators that ask for the lease, by their pods' names."""
    async with aiohttp.ClientSession(base_url=world.url) as session:
        kube = KubeClient(session=session, credentials=KubeCredentials(server=""))

        def make(pod: str, *, clock: Callable[[], float] = monotonic, **changes: Any) -> LeaderElector:
            short = {"lease_duration_seconds": 1, "lease_renew_seconds": 0.6, "lease_retry_seconds": 0.05}
            made = settings(pod_name=pod, pod_uid="1", **(short | changes))
            return LeaderElector.create(settings=made, kube=kube, metrics=Metrics(), clock=clock)

        yield make


async def run_until_killed(world: World, step: int, over: Callable[[], object], **changes: Any) -> bool:
    """Runs an operator to its step of that number, and kills it there as SIGKILL does; False where all is over first.

    From then on it reaches nobody: its connections are cut before its tasks learn of it.
    """
    world.steps.hold_at = len(world.steps.done) + step
    operator = Operator(world, settings(**changes))
    before = asyncio.all_tasks()
    starting = asyncio.create_task(operator.start())
    held = asyncio.create_task(world.steps.held.wait())
    ended = asyncio.create_task(world.until(over))
    async with asyncio.timeout(paced(20)):
        await asyncio.wait({held, ended}, return_when=asyncio.FIRST_COMPLETED)
    killed = held.done()
    for session in operator.sessions:
        assert session.connector is not None
        await session.connector.close()
    for task in asyncio.all_tasks() - before - world.own_tasks():
        if "RequestHandler.start" not in str(task.get_coro()):  # a server's, not the operator's
            task.cancel()
    await asyncio.gather(starting, held, ended, return_exceptions=True)
    await operator.stop()
    world.steps.let_go()
    return killed


@asynccontextmanager
async def late_list(operator: Operator, collection: str) -> AsyncIterator[None]:
    """Let a resync list a collection before the block and process the list after it. The resync after it is held."""
    world = operator.world
    late = world.held[collection] = asyncio.Event()
    await world.until_asked(lambda: world.holding)
    yield
    world.held[collection] = asyncio.Event()
    operator.part.resync.request()
    late.set()
    await until(lambda: late not in world.holding and world.holding)
