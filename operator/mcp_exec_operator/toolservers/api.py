"""Requests of the operator to the API server on behalf of ToolServers. Every write is counted in a metric."""

from dataclasses import dataclass
from typing import Final

from mcp_exec_api.constants import TOOL_SERVERS
from mcp_exec_api.reasons.server import ServerReason
from mcp_exec_common.kube.client import KubeClient, custom_resource_path, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.secrets import describe_release_secret, is_release_secret
from mcp_exec_operator.kube.api import get_or_none
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.toolservers.manifests import workload_labels
from mcp_exec_operator.toolservers.spec import CannotRunServer

_RESOURCES: Final = {
    "Deployment": ("deployments", "apps/v1"),
    "Service": ("services", None),
    "NetworkPolicy": ("networkpolicies", "networking.k8s.io/v1"),
}
"""Resource and API group of each kind that belongs to a ToolServer."""


@dataclass(frozen=True, kw_only=True)
class ToolServerApi:
    """Typed access to ToolServers and what belongs to them. All methods raise ApiError."""

    kube: KubeClient
    metrics: Metrics
    release_secrets: frozenset[str] = frozenset()
    """Names of the release's own Secrets, which are never given to a server."""

    async def get_like(self, manifest: Object) -> Object | None:
        """Return the object with the manifest's kind and name, or None if it does not exist."""
        metadata = manifest["metadata"]
        return await get_or_none(self.kube, self._path(manifest["kind"], metadata["namespace"], metadata["name"]))

    async def create(self, manifest: Object) -> Object:
        """Create an object and return it as stored."""
        self._count()
        resource, group = _RESOURCES[manifest["kind"]]
        path = resource_path(resource, namespace=manifest["metadata"]["namespace"], group=group)
        return await self.kube.create(path, manifest)

    async def replace(self, stored: Object, manifest: Object) -> Object:
        """Replace a stored object by a manifest and return it. A Service keeps its cluster IP."""
        self._count()
        metadata = manifest["metadata"] | {"resourceVersion": stored["metadata"]["resourceVersion"]}
        kept = {name: stored["spec"][name] for name in ("clusterIP", "clusterIPs") if name in stored.get("spec", {})}
        body = {**manifest, "metadata": metadata, "spec": {**manifest["spec"], **kept}}
        return await self.kube.replace(self._path(manifest["kind"], metadata["namespace"], metadata["name"]), body)

    async def delete_owned(self, namespace: str, name: str, *, owner_uid: str) -> None:
        """Delete the objects of that name that the ToolServer with this uid owns; the policy after the last pod."""
        for kind in _RESOURCES:
            path = self._path(kind, namespace, name)
            stored = await get_or_none(self.kube, path)
            if stored is not None and is_owned(stored, owner_uid):
                self._count()
                await self.kube.delete(path, uid=stored["metadata"]["uid"], propagation="Foreground")

    async def list_pods(self, namespace: str, server: str) -> list[Object]:
        """Return the pods of a stdio server."""
        selector = ",".join(f"{name}={value}" for name, value in workload_labels(server).items())
        return (await self.kube.list(resource_path("pods", namespace=namespace), selector=selector))[0]

    async def get_secret_version(self, namespace: str, name: str) -> str:
        """Return a text that differs for each version of a Secret; empty if the Secret does not exist.

        Raises CannotRunServer if the Secret holds keys of a release.
        """
        secret = await get_or_none(self.kube, resource_path("secrets", namespace=namespace, name=name))
        if secret is not None and is_release_secret(secret, self.release_secrets):
            raise CannotRunServer(ServerReason.SECRET_OF_RELEASE, describe_release_secret(name))
        return f"{secret['metadata']['uid']} {secret['metadata']['resourceVersion']}" if secret is not None else ""

    async def patch_status(self, body: Object, status: Object) -> Object | None:
        """Merge fields into a ToolServer's status and return the stored object; None if it was deleted."""
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

    def _count(self, what: str = "tool-server") -> None:
        self.metrics.writes.labels(what).inc()


def is_owned(item: Object, owner_uid: str) -> bool:
    """Return whether an object has an owner with this uid."""
    return any(owner.get("uid") == owner_uid for owner in item["metadata"].get("ownerReferences") or ())
