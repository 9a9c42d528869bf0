"""The parts that serve tools, built and run together: the ToolServer controller and the wrapper bundles."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

from mcp_exec_api.constants import LABEL_MANAGED_BY, LABEL_NAME, MANAGED_BY, TOOL_SERVERS
from mcp_exec_common.kube.client import KubeClient, custom_resource_path, resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_operator.cluster.broker import BrokerDiscovery
from mcp_exec_operator.cluster.kube.observations import strip
from mcp_exec_operator.core.pods.network_policy import ReleasePods
from mcp_exec_operator.core.pods.pod import Pod
from mcp_exec_operator.features.tools.controller import ToolServerApi, ToolServerController
from mcp_exec_operator.features.tools.manifests import TOOL_SERVER_NAME, BridgeImage
from mcp_exec_operator.features.tools.wrappers import BundleRefresher, WrapperDistributor
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.settings import Settings


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
