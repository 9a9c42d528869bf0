"""Requests of the operator to the API server on behalf of rollouts. Every write is counted in a metric."""

from dataclasses import dataclass

from mcp_exec_api.constants import API_VERSION, ROLLOUTS
from mcp_exec_common.kube.client import KubeClient, custom_resource_path, resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.kube.api import get_or_none
from mcp_exec_operator.metrics import Metrics


@dataclass(frozen=True, kw_only=True)
class RolloutApi:
    """Typed access to rollouts and their Events. All methods raise ApiError."""

    kube: KubeClient
    metrics: Metrics

    async def get(self, namespace: str, name: str) -> Object | None:
        """Return a rollout, or None if it does not exist."""
        return await get_or_none(self.kube, custom_resource_path(ROLLOUTS, namespace=namespace, name=name))

    async def replace_status(self, namespace: str, name: str, *, version: str, status: Object) -> Object:
        """Replace a rollout's status and return the stored rollout.

        Raises ApiError 409 if its resource version is another.
        """
        self.metrics.writes.labels("rollout-status").inc()
        metadata = {"namespace": namespace, "name": name, "resourceVersion": version}
        return await self.kube.replace(
            custom_resource_path(ROLLOUTS, namespace=namespace, name=name) + "/status",
            {"apiVersion": API_VERSION, "kind": "ExecutionRollout", "metadata": metadata, "status": status},
        )

    async def create_event(self, event: Object) -> None:
        """Create an Event."""
        self.metrics.writes.labels("event").inc()
        await self.kube.create(resource_path("events", namespace=event["metadata"]["namespace"]), event)
