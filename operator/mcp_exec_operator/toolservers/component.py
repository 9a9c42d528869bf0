"""The parts that serve tools, built and run together: broker discovery, ToolServer controller, wrapper bundles."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, Self

import aiohttp

from mcp_exec_api.constants import LABEL_MANAGED_BY, LABEL_NAME, MANAGED_BY, TOOL_SERVERS
from mcp_exec_common.broker.client import BrokerClient, follow_broker
from mcp_exec_common.broker.grants import GrantSigner
from mcp_exec_common.broker.replicas import list_replicas
from mcp_exec_common.kube.client import KubeClient, custom_resource_path, resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_operator.kube.observations import strip
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.pods.network_policy import ReleasePods
from mcp_exec_operator.pods.pod import Pod
from mcp_exec_operator.settings import Settings
from mcp_exec_operator.toolservers.controller import ToolServerApi, ToolServerController
from mcp_exec_operator.toolservers.manifests import TOOL_SERVER_NAME, BridgeImage
from mcp_exec_operator.toolservers.wrappers import BundleRefresher, WrapperDistributor

_CALLS_PORT: Final = "calls"
"""Name of the port that sandboxes call."""
_CHECK_SECONDS: Final = 0.25
_CHECKS: Final = 120
"""How often the operator checks whether the broker has a pod: for 30 seconds. A new pod starts in less time."""
_SYNC_SECONDS: Final = 3.0
"""Longest wait at the start for the broker's Service: executions that are bound already need its address."""


@dataclass(frozen=True, kw_only=True)
class BrokerReplica:
    """One pod of the broker."""

    uid: str
    url: str
    """URL that sandboxes call, by IP address since they have no DNS."""


@dataclass(kw_only=True, eq=False)
class BrokerDiscovery:
    """The broker's addresses as watches report them."""

    namespace: str
    """The release's namespace."""
    service: str
    """Name of the broker's Service."""
    client: BrokerClient
    """Client of all ready replicas."""
    slices: Reflector
    """EndpointSlices of the Service."""

    @classmethod
    def create(
        cls, *, kube: KubeClient, session: aiohttp.ClientSession, keys: SandboxKeys, namespace: str, service: str
    ) -> Self:
        """Create the discovery of the broker behind a Service. `keys` sign grants and service tokens."""
        client, slices = follow_broker(
            kube=kube, session=session, namespace=namespace, service=service, keys=keys, sender="operator"
        )
        return cls(namespace=namespace, service=service, client=client, slices=slices)

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow the Service while the context lasts, whose addresses are usually known when it begins."""
        async with self.slices.run_in_background():
            with suppress(TimeoutError):
                async with asyncio.timeout(_SYNC_SECONDS):
                    await self.slices.synced.wait()
            yield

    @property
    def signer(self) -> GrantSigner:
        """The signer of grants."""
        return self.client.signer

    def choose_replica(self, uid: str) -> BrokerReplica | None:
        """Return the replica for an execution, always the same one of the same replicas; None if there is none.

        A replica that is not ready counts only if none is.
        """
        replicas = [
            replica
            for replica in list_replicas(self.slices.items.values())
            if replica.uid and _CALLS_PORT in replica.ports
        ]
        candidates = [replica for replica in replicas if replica.ready] or replicas
        if not candidates:
            return None
        chosen = max(candidates, key=lambda replica: hashlib.sha256(f"{replica.uid} {uid}".encode()).digest())
        return BrokerReplica(uid=chosen.uid, url=f"http://{chosen.host}:{chosen.ports[_CALLS_PORT]}")

    async def wait_for_replica(self) -> None:
        """Wait until the broker has a pod, and at most 30 seconds: an upgrade may replace the only one."""
        for _ in range(_CHECKS):
            if self.choose_replica("") is not None:
                return
            await asyncio.sleep(_CHECK_SECONDS)


class ToolServerComponent:
    """All parts of the operator that serve tools. Exists only if a broker is configured."""

    def __init__(
        self,
        *,
        settings: Settings,
        kube: KubeClient,
        broker: BrokerDiscovery,
        keys: SandboxKeys,
        distributor: WrapperDistributor,
        warm_pods: Callable[[str], Iterable[Pod]],
        metrics: Metrics,
        tasks: TaskRegistry,
    ) -> None:
        """Build all parts; nothing runs yet. The bridges' tokens come of `keys`; `warm_pods` lists a namespace's."""
        bridge = BridgeImage(
            image=settings.servers_image,
            pull_policy=settings.servers_image_pull_policy,
            pull_secrets=settings.servers_image_pull_secrets,
        )
        self.namespaces = settings.namespaces
        self.tasks = tasks
        self.broker = broker
        self.distributor = distributor
        self.controller = ToolServerController(
            api=ToolServerApi(kube=kube, metrics=metrics, release_secrets=frozenset(settings.release_secrets)),
            keys=keys,
            release=ReleasePods.of(settings),
            bridge=bridge if settings.servers_image else None,
            assign_users=settings.sandbox_users == "Random",
            resync_seconds=settings.resync_seconds,
        )
        self.refresher = BundleRefresher(
            broker=broker.client,
            distributor=distributor,
            refresh_seconds=settings.wrappers_seconds,
            warm_pods=warm_pods,
        )
        self._reflectors: list[Reflector] = []
        for namespace in settings.namespaces:
            path = custom_resource_path(TOOL_SERVERS, namespace=namespace)
            servers = Reflector(kube=kube, path=path, on_change=self._observe)
            distributor.bundles[namespace].listed = servers.synced
            self._reflectors.append(servers)
            pods = Reflector(
                kube=kube,
                path=resource_path("pods", namespace=namespace),
                selector=f"{LABEL_MANAGED_BY}={MANAGED_BY},{LABEL_NAME}={TOOL_SERVER_NAME}",
                on_change=lambda pod, _: self.controller.observe_pod(pod),
                transform=strip,
            )
            self._reflectors.append(pods)
        self._loops: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run all parts while the context lasts."""
        async with AsyncExitStack() as stack:
            for reflector in self._reflectors:
                await stack.enter_async_context(reflector.run_in_background())
            self._loops.append(self.tasks.spawn(self.controller.run(), name="tool servers"))
            self._loops += [
                self.tasks.spawn(self.refresher.run(namespace), name=f"wrappers of {namespace}")
                for namespace in self.namespaces
            ]
            yield

    def close(self) -> None:
        """Cancel all loops and deliveries."""
        for loop in self._loops:
            loop.cancel()
        self._loops.clear()
        self.distributor.close()

    def _observe(self, body: Object, deleted: bool) -> None:
        self.controller.observe(body, deleted=deleted)
        self.distributor.bundles[body["metadata"]["namespace"]].observe(body, deleted=deleted)
