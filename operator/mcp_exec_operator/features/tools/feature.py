"""Tools in one namespace: its ToolServers, and the wrappers that sandboxes get."""

from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from mcp_exec_api.constants import LABEL_MANAGED_BY, LABEL_NAME, MANAGED_BY, TOOL_SERVERS
from mcp_exec_common.kube.client import custom_resource_path, resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_operator.cluster.broker import BrokerDiscovery
from mcp_exec_operator.cluster.kube.observations import strip
from mcp_exec_operator.core.feature import Feature, FeatureContext
from mcp_exec_operator.core.pods.network_policy import ReleasePods
from mcp_exec_operator.features.tools.controller import ToolServerApi, ToolServerController
from mcp_exec_operator.features.tools.manifests import TOOL_SERVER_NAME, BridgeImage
from mcp_exec_operator.features.tools.network import ServerNetwork
from mcp_exec_operator.features.tools.part import Tools
from mcp_exec_operator.features.tools.wrappers import BundleRefresher, WrapperDistributor, build_bundles


class ToolsFeature(Feature):
    """Grants tools to executions. Without a broker it refuses those that ask for some."""

    def __init__(self, context: FeatureContext) -> None:
        """Build all parts."""
        self.distributor = WrapperDistributor(
            sandboxes=context.supervisors,
            tasks=context.tasks,
            write_priority=context.write_priority,
            bundles=build_bundles(context.namespace),
        )
        context.pools.services.idle.connect(self.distributor.deliver_to)
        self.executions = Tools(
            broker=context.broker, distributor=self.distributor, writer=context.writer, tasks=context.tasks
        )
        self.servers = None if context.broker is None else ToolServers(context, context.broker, self.distributor)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch ToolServers and their pods while the context lasts."""
        async with AsyncExitStack() as stack:
            for reflector in self.servers.reflectors if self.servers is not None else ():
                await stack.enter_async_context(reflector.run_in_background())
            yield

    def list_loops(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """Return the loops of the controller and of the wrappers."""
        if self.servers is None:
            return {}
        refresher = self.servers.refresher
        wrappers = {f"wrappers of {key[0]} in {key[1]}": refresher.run(key) for key in self.distributor.bundles}
        return {"tool servers": self.servers.controller.run(), **wrappers}

    def observe(self, kind: str, body: Object, *, deleted: bool) -> None:
        """Take in an event of a NetworkPolicy, which may be that of a ToolServer."""
        if kind == "policy" and self.servers is not None:
            self.servers.controller.observe_policy(body, deleted=deleted)

    def close(self) -> None:
        """Cancel all deliveries of wrappers."""
        self.distributor.close()


class ToolServers:
    """The ToolServers of a namespace, which exist only with a broker."""

    def __init__(self, context: FeatureContext, broker: BrokerDiscovery, distributor: WrapperDistributor) -> None:
        """Build all parts. The bridges' tokens come of the supervisors' keys."""
        settings, namespace = context.settings, context.namespace
        bridge = BridgeImage(
            image=settings.servers_image,
            pull_policy=settings.servers_image_pull_policy,
            pull_secrets=settings.servers_image_pull_secrets,
        )
        self.distributor = distributor
        self.controller = ToolServerController(
            api=ToolServerApi(
                kube=context.kube, metrics=context.metrics, release_secrets=frozenset(settings.release_secrets)
            ),
            keys=context.supervisors.keys,
            release=ReleasePods.of(settings),
            bridge=bridge if settings.servers_image else None,
            network=ServerNetwork.from_settings(settings),
            assign_users=settings.sandbox_users == "Random",
            resync_seconds=settings.resync_seconds,
        )
        self.refresher = BundleRefresher(
            broker=broker.client,
            distributor=distributor,
            refresh_seconds=settings.wrappers_seconds,
            warm_pods=context.pools.warm_pods,
        )
        servers = Reflector(
            kube=context.kube, path=custom_resource_path(TOOL_SERVERS, namespace=namespace), on_change=self._observe
        )
        for bundle in distributor.bundles.values():
            bundle.listed = servers.synced
        pods = Reflector(
            kube=context.kube,
            path=resource_path("pods", namespace=namespace),
            selector=f"{LABEL_MANAGED_BY}={MANAGED_BY},{LABEL_NAME}={TOOL_SERVER_NAME}",
            on_change=lambda pod, _: self.controller.observe_pod(pod),
            transform=strip,
        )
        self.reflectors = (servers, pods)

    def _observe(self, body: Object, deleted: bool) -> None:
        self.controller.observe(body, deleted=deleted)
        for bundle in self.distributor.bundles.values():
            bundle.observe(body, deleted=deleted)
