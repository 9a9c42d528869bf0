"""Tracker of ToolServer objects: applies each change to everything that is kept per server."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_api.constants import TOOL_SERVERS
from mcp_exec_broker.access.limiters import ServerConcurrency
from mcp_exec_broker.catalog.entry import OutputInference
from mcp_exec_broker.catalog.sync import CatalogSync
from mcp_exec_broker.upstream.credentials import SecretCache, list_secret_names
from mcp_exec_broker.upstream.servers import ToolServer, ToolServerCache
from mcp_exec_broker.upstream.session_pool import SessionPool
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey, Reflector

_KEPT_METADATA: Final = ("namespace", "name")


@dataclass(kw_only=True, eq=False)
class ToolServerTracker:
    """Watches ToolServers, and starts, updates and removes their catalogs, sessions, Secrets and limits."""

    kube: KubeClient
    namespaces: Iterable[str]
    servers: ToolServerCache
    catalogs: CatalogSync
    sessions: SessionPool
    inference: OutputInference
    secrets: SecretCache
    concurrency: ServerConcurrency
    reflectors: dict[str, Reflector] = field(init=False)
    """Reflectors by the name of what they load."""

    def __post_init__(self) -> None:
        self.reflectors = {f"ToolServers in {name}": self._build_reflector(name) for name in self.namespaces}

    def _build_reflector(self, namespace: str) -> Reflector:
        return Reflector(
            kube=self.kube,
            path=custom_resource_path(TOOL_SERVERS, namespace=namespace),
            on_change=self.observe,
            transform=lambda item: {"metadata": {name: item["metadata"].get(name) for name in _KEPT_METADATA}},
        )

    def observe(self, item: Object, deleted: bool) -> None:
        """Apply a changed or deleted ToolServer."""
        before, after = self.servers.observe(item, deleted)
        if after is None:
            if before is not None:
                self._remove(before.key)
            self._drop_unused()
            return
        if before is not None and before.uid != after.uid:
            self._remove(before.key)
            before = None
        self.inference.restore(after)
        if before is None or not before.has_same_connection(after):
            self._drop_unused()
            self.sessions.retry(after.key)
            self.catalogs.start(after)

    async def drop_unused_when_synced(self) -> None:
        """Drop copies of servers that were deleted while no broker ran, once all servers are loaded."""
        for reflector in self.reflectors.values():
            await reflector.synced.wait()
        self._drop_unused()

    def _remove(self, key: ObjectKey) -> None:
        self.catalogs.remove(key)
        self.sessions.remove(key)
        self.inference.remove(key)
        self.concurrency.remove(key)

    def _drop_unused(self) -> None:
        """Drop copies and Secrets that belong to no server any more."""
        if all(reflector.synced.is_set() for reflector in self.reflectors.values()):
            self.catalogs.disk_cache.retain(self.servers)
        self.secrets.retain({key for server in self.servers for key in _list_secrets(server)})


def _list_secrets(server: ToolServer) -> set[ObjectKey]:
    return {(server.namespace, name) for name in list_secret_names(server.spec)} if server.spec is not None else set()
