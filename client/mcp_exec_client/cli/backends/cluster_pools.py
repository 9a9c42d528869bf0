"""Pools at the API server."""

from typing import Final

from mcp_exec_api.constants import POOLS
from mcp_exec_client.cli.options import Object
from mcp_exec_common.kube.client import KubeClient, custom_resource_path

_MAX_LISTED: Final = 5000
_SPEC: Final = ("maxTimeoutSeconds", "maxPods", "maxQueued")
_STATUS: Final = ("warm", "starting", "busy", "queued", "python", "libraries")


async def list_pools(kube: KubeClient, *, namespace: str) -> list[Object]:
    """Return the pools of a namespace, ordered by name. Raises ApiError."""
    found: list[Object] = []

    def take(pool: Object) -> None:
        if len(found) < _MAX_LISTED:
            found.append(_build_view(pool))

    await kube.scan(custom_resource_path(POOLS, namespace=namespace), take)
    return sorted(found, key=lambda item: str(item["name"]))


def _build_view(pool: Object) -> Object:
    """Return a pool in the form of the gateway's responses."""
    spec, status = pool.get("spec") or {}, pool.get("status") or {}
    view = {"name": pool["metadata"]["name"], "runtime": spec.get("runtimeClassName")}
    view |= {name: spec.get(name) for name in _SPEC} | {name: status.get(name) for name in _STATUS}
    return {name: value for name, value in view.items() if value is not None}
