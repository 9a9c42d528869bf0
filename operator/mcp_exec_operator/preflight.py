"""Checks before the operator starts: the API server, the CRDs and the necessary permissions."""

import asyncio
import logging
from time import monotonic

from mcp_exec_api.constants import EXECUTIONS, GROUP, POOLS, SESSIONS, VERSION
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.errors import ApiError

log = logging.getLogger(__name__)


class CannotStart(Exception):
    """The operator can't run here; the text says why."""


async def check_api(
    kube: KubeClient, *, namespaces: tuple[str, ...], watch_nodes: bool, wait_seconds: float
) -> tuple[str, ...]:
    """Check that the API server responds, has the CRDs and permits the necessary lists. Raises CannotStart.

    It waits `wait_seconds` for an API server that does not respond. Returns the namespaces that can be served: one that
    was deleted, and with it the rights in it, must not stop the others.
    """
    deadline = monotonic() + wait_seconds
    while True:
        try:
            resources = await kube.get(f"/apis/{GROUP}/{VERSION}")
            break
        except ApiError as error:
            if error.code == 404:
                raise CannotStart(f"the CRDs of {GROUP}/{VERSION} are not installed") from error
            if monotonic() >= deadline or error.code in (401, 403):
                raise CannotStart(f"the API server can't be used: {error}") from error
            log.warning("the API server does not respond yet: %s", error)
            await asyncio.sleep(1)
    missing = {EXECUTIONS, POOLS, SESSIONS} - {resource["name"] for resource in resources["resources"]}
    if missing:
        raise CannotStart(f"the CRDs of {', '.join(sorted(missing))} are not installed")
    served = await _check_namespaces(kube, namespaces)
    if watch_nodes:
        try:
            await kube.get(resource_path("nodes"), limit="1")
        except ApiError as error:
            raise CannotStart(f"the nodes can't be listed, and MCP_EXEC_WATCH_NODES is not false: {error}") from error
    return served


async def _check_namespaces(kube: KubeClient, namespaces: tuple[str, ...]) -> tuple[str, ...]:
    """Return the namespaces whose pods can be listed. Raises CannotStart if there is none."""
    refused: dict[str, ApiError] = {}
    for namespace in namespaces:
        try:
            await kube.get(resource_path("pods", namespace=namespace), limit="1")
        except ApiError as error:
            refused[namespace] = error
            if len(refused) == len(namespaces) or error.code not in (403, 404):
                raise CannotStart(f"the pods of namespace {namespace} can't be listed: {error}") from error
    for namespace, refusal in refused.items():
        log.error("namespace %s is not served, since its pods can't be listed: %s", namespace, refusal)
    return tuple(namespace for namespace in namespaces if namespace not in refused)
