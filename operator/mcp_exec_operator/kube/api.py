"""The operator's calls to the API server, each counted, and what they mean."""

from dataclasses import dataclass
from typing import Final

from mcp_exec_api.constants import (
    API_VERSION,
    EXECUTIONS,
    LABEL_MANAGED_BY,
    LABEL_NAME,
    MANAGED_BY,
    POOLS,
    SANDBOX_NAME,
)
from mcp_exec_common.kube.client import JSON_PATCH, KubeClient, custom_resource_path, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.metrics import Metrics

POD_SELECTOR: Final = f"{LABEL_MANAGED_BY}={MANAGED_BY},{LABEL_NAME}={SANDBOX_NAME}"
_NETWORK: Final = "networking.k8s.io/v1"
_CHUNK: Final = 100
"""Objects per page of a list: parsing a page must not hold up executions."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The API server as the operator uses it. All methods raise ApiError, and ApiUnreachable without an answer."""

    kube: KubeClient
    metrics: Metrics

    async def executions(self, namespace: str) -> list[Object]:
        """All executions of a namespace."""
        return (await self.kube.list(custom_resource_path(EXECUTIONS, namespace=namespace), chunk=_CHUNK))[0]

    async def pools(self, namespace: str) -> list[Object]:
        """All pools of a namespace."""
        return (await self.kube.list(custom_resource_path(POOLS, namespace=namespace), chunk=_CHUNK))[0]

    async def pods(self, namespace: str) -> list[Object]:
        """All sandbox pods of a namespace."""
        path = resource_path("pods", namespace=namespace)
        return (await self.kube.list(path, selector=POD_SELECTOR, chunk=_CHUNK))[0]

    async def execution(self, namespace: str, name: str) -> Object | None:
        """One execution as it is now, or None where there is none."""
        return await self._maybe(custom_resource_path(EXECUTIONS, namespace=namespace, name=name))

    async def pod(self, namespace: str, name: str) -> Object | None:
        """One pod as it is now, or None where there is none."""
        return await self._maybe(resource_path("pods", namespace=namespace, name=name))

    async def write_execution(self, namespace: str, name: str, *, version: str, status: Object, what: str) -> Object:
        """Replaces an execution's status, if its resource version is still this one (else ApiError 409).

        Whatever else of the object is sent to the path of its status, the API server ignores. A patch of it costs the
        API server twice the time, and a merge patch would drop each null inside a result.
        """
        self._count(what)
        metadata = {"namespace": namespace, "name": name, "resourceVersion": version}
        return await self.kube.replace(
            custom_resource_path(EXECUTIONS, namespace=namespace, name=name) + "/status",
            {"apiVersion": API_VERSION, "kind": "CodeExecution", "metadata": metadata, "status": status},
        )

    async def delete_execution(self, namespace: str, name: str, *, uid: str) -> None:
        """Deletes that very execution."""
        self._count("execution-delete")
        await self.kube.delete(custom_resource_path(EXECUTIONS, namespace=namespace, name=name), uid=uid)

    async def patch_pool(self, namespace: str, name: str, status: Object) -> Object:
        """Merges into a pool's status."""
        self._count("pool-status")
        return await self.kube.patch(
            custom_resource_path(POOLS, namespace=namespace, name=name) + "/status", {"status": status}
        )

    async def create_pod(self, manifest: Object) -> Object:
        """Creates a pod."""
        self._count("pod-create")
        return await self.kube.create(resource_path("pods", namespace=manifest["metadata"]["namespace"]), manifest)

    async def patch_pod(self, namespace: str, name: str, body: Object) -> Object:
        """Merges into a pod."""
        self._count("pod-label")
        return await self.kube.patch(resource_path("pods", namespace=namespace, name=name), body)

    async def delete_pod(self, namespace: str, name: str, *, uid: str | None, grace_seconds: int = 1) -> None:
        """Deletes a pod, with its uid only that very one."""
        self._count("pod-delete")
        path = resource_path("pods", namespace=namespace, name=name)
        await self.kube.delete(path, grace_seconds=grace_seconds, uid=uid)

    async def pod_warning(self, namespace: str, name: str) -> str:
        """The message of the newest warning about a pod, or an empty text."""
        found = await self.kube.get(
            resource_path("events", namespace=namespace),
            fieldSelector=f"involvedObject.kind=Pod,involvedObject.name={name},type=Warning",
            limit="20",
        )
        events = sorted(found.get("items") or [], key=lambda event: str(event.get("lastTimestamp") or ""))
        return f"{events[-1].get('reason')}: {events[-1].get('message')}" if events else ""

    async def network_policy(self, namespace: str, name: str) -> Object | None:
        """One NetworkPolicy, or None."""
        return await self._maybe(resource_path("networkpolicies", namespace=namespace, name=name, group=_NETWORK))

    async def create_network_policy(self, policy: Object) -> None:
        """Creates a NetworkPolicy."""
        self._count("network-policy")
        namespace = policy["metadata"]["namespace"]
        await self.kube.create(resource_path("networkpolicies", namespace=namespace, group=_NETWORK), policy)

    async def replace_network_policy_spec(self, policy: Object) -> None:
        """Gives a NetworkPolicy this spec, and nothing of what it had."""
        self._count("network-policy")
        meta = policy["metadata"]
        await self.kube.patch(
            resource_path("networkpolicies", namespace=meta["namespace"], name=meta["name"], group=_NETWORK),
            [{"op": "replace", "path": "/spec", "value": policy["spec"]}],
            content_type=JSON_PATCH,
        )

    async def create_event(self, event: Object) -> None:
        """Creates an Event."""
        self._count("event")
        await self.kube.create(resource_path("events", namespace=event["metadata"]["namespace"]), event)

    async def _maybe(self, path: str) -> Object | None:
        try:
            return await self.kube.get(path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def _count(self, what: str) -> None:
        self.metrics.writes.labels(what).inc()
