"""Namespaces that an operator serves, as the status of their pools shows."""

from typing import Final

from mcp_exec_api.constants import POOLS
from mcp_exec_client.cli.backends.backend import NOT_OBSERVED
from mcp_exec_client.cli.options import Object
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.errors import ApiError

_MAX_NAMED: Final = 10


async def is_served(kube: KubeClient, namespace: str) -> bool:
    """Return whether a namespace has a pool that an operator has observed. True without the right to list pools."""
    try:
        pools, _ = await kube.list(custom_resource_path(POOLS, namespace=namespace), transform=_reduce)
    except ApiError as error:
        if error.code == 403:
            return True
        raise
    return any(pool["observed"] for pool in pools)


async def find_served(kube: KubeClient) -> list[str]:
    """Return the first namespaces with pools that an operator has observed; none without the right to list them."""
    try:
        pools, _ = await kube.list(custom_resource_path(POOLS), transform=_reduce)
    except ApiError as error:
        if error.code == 403:
            return []
        raise
    return sorted({pool["namespace"] for pool in pools if pool["observed"]})[:_MAX_NAMED]


def _reduce(pool: Object) -> Object:
    conditions = (pool.get("status") or {}).get("conditions") or []
    reasons = [each.get("reason") for each in conditions if each.get("type") == "Ready"]
    return {
        "namespace": str(pool["metadata"].get("namespace", "")),
        "observed": bool(reasons) and NOT_OBSERVED not in reasons,
    }
