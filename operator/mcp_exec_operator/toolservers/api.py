"""The operator's calls to the API server on behalf of ToolServers, each write counted. All raise ApiError."""

from dataclasses import dataclass
from typing import Final

from mcp_exec_api.constants import TOOL_SERVERS
from mcp_exec_common.kube.client import KubeClient, custom_resource_path, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.toolservers.manifests import workload_labels

_RESOURCES: Final = {
    "Deployment": ("deployments", "apps/v1"),
    "Service": ("services", None),
    "NetworkPolicy": ("networkpolicies", "networking.k8s.io/v1"),
}


@dataclass(frozen=True, kw_only=True)
class ToolObjects:
    """What belongs to ToolServers, in the API server."""

    kube: KubeClient
    metrics: Metrics

    async def find(self, wanted: Object) -> Object | None:
        """The object of that kind and name as it is, or None."""
        return await self._maybe(
            self._path(wanted["kind"], wanted["metadata"]["namespace"], wanted["metadata"]["name"])
        )

    async def create(self, wanted: Object) -> Object:
        """Creates it."""
        self._count()
        resource, group = _RESOURCES[wanted["kind"]]
        return await self.kube.create(
            resource_path(resource, namespace=wanted["metadata"]["namespace"], group=group), wanted
        )

    async def replace(self, found: Object, wanted: Object) -> Object:
        """Gives an object what is wanted, and nothing else of what it had but a Service's address."""
        self._count()
        metadata = wanted["metadata"] | {"resourceVersion": found["metadata"]["resourceVersion"]}
        kept = {name: found["spec"][name] for name in ("clusterIP", "clusterIPs") if name in found.get("spec", {})}
        body = {**wanted, "metadata": metadata, "spec": {**wanted["spec"], **kept}}
        return await self.kube.replace(self._path(wanted["kind"], metadata["namespace"], metadata["name"]), body)

    async def remove(self, namespace: str, name: str, *, owner: str) -> None:
        """Deletes what a ToolServer of that uid had."""
        for kind in _RESOURCES:
            found = await self._maybe(self._path(kind, namespace, name))
            if found is not None and any(
                each.get("uid") == owner for each in found["metadata"].get("ownerReferences") or ()
            ):
                self._count()
                await self.kube.delete(self._path(kind, namespace, name), uid=found["metadata"]["uid"])

    async def pods(self, namespace: str, server: str) -> list[Object]:
        """The pods of a server."""
        selector = ",".join(f"{name}={value}" for name, value in workload_labels(server).items())
        return (await self.kube.list(resource_path("pods", namespace=namespace), selector=selector))[0]

    async def secret_version(self, namespace: str, name: str) -> str:
        """What tells a Secret's state from any other; an empty text where there is no such Secret."""
        found = await self._maybe(resource_path("secrets", namespace=namespace, name=name))
        return f"{found['metadata']['uid']} {found['metadata']['resourceVersion']}" if found is not None else ""

    async def patch_status(self, body: Object, status: Object) -> Object | None:
        """Merges into a ToolServer's status; None where it is gone."""
        self._count("tool-server-status")
        meta = body["metadata"]
        path = custom_resource_path(TOOL_SERVERS, namespace=meta["namespace"], name=meta["name"]) + "/status"
        try:
            return await self.kube.patch(path, {"status": status})
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    @staticmethod
    def _path(kind: str, namespace: str, name: str) -> str:
        resource, group = _RESOURCES[kind]
        return resource_path(resource, namespace=namespace, name=name, group=group)

    async def _maybe(self, path: str) -> Object | None:
        try:
            return await self.kube.get(path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def _count(self, what: str = "tool-server") -> None:
        self.metrics.writes.labels(what).inc()
