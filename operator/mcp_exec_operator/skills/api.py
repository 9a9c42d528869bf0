"""Requests of the operator to the API server on behalf of skills. Every write is counted in a metric."""

from dataclasses import dataclass

from mcp_exec_api.constants import API_VERSION, SKILLS
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.kube.api import get_or_none
from mcp_exec_operator.metrics import Metrics


@dataclass(frozen=True, kw_only=True)
class SkillApi:
    """Typed access to skills. All methods raise ApiError."""

    kube: KubeClient
    metrics: Metrics

    async def get(self, namespace: str, name: str) -> Object | None:
        """Return a skill, or None if it does not exist."""
        return await get_or_none(self.kube, custom_resource_path(SKILLS, namespace=namespace, name=name))

    async def create(self, manifest: Object) -> Object:
        """Create a skill. Raises ApiError 409 if one of this name exists."""
        self.metrics.writes.labels("skill").inc()
        path = custom_resource_path(SKILLS, namespace=manifest["metadata"]["namespace"])
        return await self.kube.create(path, manifest)

    async def delete(self, namespace: str, name: str, *, uid: str) -> None:
        """Delete the skill with this uid, if it still exists."""
        self.metrics.writes.labels("skill").inc()
        await self.kube.delete(custom_resource_path(SKILLS, namespace=namespace, name=name), uid=uid)

    async def replace_status(self, namespace: str, name: str, *, version: str, status: Object) -> Object:
        """Replace a skill's status. Raises ApiError 409 if its resource version is another."""
        self.metrics.writes.labels("skill-status").inc()
        metadata = {"namespace": namespace, "name": name, "resourceVersion": version}
        return await self.kube.replace(
            custom_resource_path(SKILLS, namespace=namespace, name=name) + "/status",
            {"apiVersion": API_VERSION, "kind": "Skill", "metadata": metadata, "status": status},
        )
