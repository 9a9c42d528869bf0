"""Event sources: kopf for executions, pools and nodes; reflectors for pods, the busiest kind, and for policies.

kopf delivers watch events and does nothing else: no patches, no finalizers, no state on objects. A single-use pod
causes five events or more; reflectors instead of kopf save a fifth of the operator's CPU time per execution.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import kopf

from mcp_exec_api.constants import EXECUTIONS, GROUP, POOLS, VERSION
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.credentials import KubeCredentials
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_operator.kube.api import NETWORKING_GROUP, POD_SELECTOR

OnEvent = Callable[[Object, bool], None]
"""Receives an object and whether it was deleted. Must not block."""

_EMPTY: Final[Any] = kopf.BodyEssence({})


class EmptyDiffBaseStorage(kopf.DiffBaseStorage):
    """Storage that keeps nothing: there are no change handlers, so kopf needs no diffs."""

    def build(self, *, body: Any, extra_fields: Any = None) -> Any:
        """Return an empty essence instead of a deep copy of every object at every event."""
        return _EMPTY

    def fetch(self, *, body: Any) -> Any:
        """Return the same empty essence, so that there is no difference."""
        return _EMPTY

    def store(self, *, body: Any, patch: Any, essence: Any) -> None:
        """Do nothing."""


class EmptyProgressStorage(kopf.ProgressStorage):
    """Storage that keeps nothing: the handlers end at once and have no progress."""

    def fetch(self, *, key: Any, body: Any) -> None:
        """Return None."""
        return

    def store(self, *, key: Any, record: Any, body: Any, patch: Any) -> None:
        """Do nothing."""

    def purge(self, *, key: Any, body: Any, patch: Any) -> None:
        """Do nothing."""

    def touch(self, *, body: Any, patch: Any, value: Any) -> None:
        """Do nothing."""

    def clear(self, *, essence: Any) -> Any:
        """Return the argument itself instead of a copy."""
        return essence


def build_settings() -> kopf.OperatorSettings:
    """Build kopf's settings: cheap watches that are retried forever."""
    settings = kopf.OperatorSettings()
    settings.queueing.idle_timeout = 1.0
    settings.queueing.exit_timeout = 1.0
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.networking.request_timeout = 10
    settings.networking.connect_timeout = 3
    settings.networking.error_backoffs = (0.1, 0.3, 1, 2, 5)
    settings.watching.chunk_size = 100
    settings.persistence.diffbase_storage = EmptyDiffBaseStorage()
    settings.persistence.progress_storage = EmptyProgressStorage()
    settings.peering.standalone = True
    settings.process.ultimate_exiting_timeout = None
    return settings


def build_registry(
    *, credentials: KubeCredentials, on_execution: OnEvent, on_pool: OnEvent, on_node: OnEvent | None
) -> kopf.OperatorRegistry:
    """Build the registry of handlers. They must be quick and do no I/O. Without `on_node`, nodes are not watched."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await build_connection_info(credentials)

    def build_handler(on_event: OnEvent) -> Callable[..., Awaitable[None]]:
        async def handle(event: Any, **_: Any) -> None:
            on_event(event["object"], event["type"] == "DELETED")

        return handle

    for plural, on_event in ((EXECUTIONS, on_execution), (POOLS, on_pool)):
        kopf.on.event(GROUP, VERSION, plural, registry=registry, id=plural)(build_handler(on_event))
    if on_node is not None:
        kopf.on.event("", "v1", "nodes", registry=registry, id="nodes")(build_handler(on_node))
    return registry


@asynccontextmanager
async def follow_pods(*, kube: KubeClient, namespaces: tuple[str, ...], on_pod: OnEvent) -> AsyncIterator[None]:
    """Pass every event of sandbox pods in these namespaces to `on_pod` while the context lasts."""
    async with AsyncExitStack() as stack:
        for namespace in namespaces:
            reflector = Reflector(
                kube=kube,
                path=resource_path("pods", namespace=namespace),
                selector=POD_SELECTOR,
                on_change=on_pod,
                transform=_strip_pod,
            )
            await stack.enter_async_context(reflector.run_in_background())
        yield


@asynccontextmanager
async def follow_policies(*, kube: KubeClient, namespaces: tuple[str, ...], on_policy: OnEvent) -> AsyncIterator[None]:
    """Pass every event of NetworkPolicies in these namespaces to `on_policy` while the context lasts."""
    async with AsyncExitStack() as stack:
        for namespace in namespaces:
            path = resource_path("networkpolicies", namespace=namespace, group=NETWORKING_GROUP)
            reflector = Reflector(kube=kube, path=path, on_change=on_policy, transform=_strip_policy)
            await stack.enter_async_context(reflector.run_in_background())
        yield


def _strip_policy(policy: Object) -> Object:
    """Return what a deletion missed by the watch has to name."""
    metadata = policy["metadata"]
    return {"metadata": {name: metadata.get(name) for name in ("name", "namespace", "uid")}}


def _strip_pod(pod: Object) -> Object:
    """Return what a deletion missed by the watch has to name; PodCache keeps everything else."""
    metadata = pod["metadata"]
    return {"metadata": {name: metadata.get(name) for name in ("name", "namespace", "uid", "labels")}}


async def build_connection_info(credentials: KubeCredentials) -> kopf.ConnectionInfo:
    """Build kopf's credentials from the current token. kopf asks again if the API server rejects them."""
    header = await credentials.authorization()
    scheme, _, token = (header or "").rpartition(" ")
    return kopf.ConnectionInfo(
        server=credentials.server,
        ca_path=credentials.ca_file,
        insecure=not credentials.verify,
        scheme=scheme or ("Bearer" if token else None),
        token=token or None,
        certificate_path=credentials.certificate_file,
        private_key_path=credentials.key_file,
    )


async def watch(
    *, registry: kopf.OperatorRegistry, namespaces: tuple[str, ...], ready: asyncio.Event, stop: asyncio.Event
) -> None:
    """Run kopf until `stop` is set. At its end kopf cancels all tasks created after its start: end them before."""
    for name in ("kopf.objects", "kopf.activities", "kopf._core"):
        logging.getLogger(name).setLevel(logging.WARNING)
    await kopf.operator(
        registry=registry, settings=build_settings(), namespaces=namespaces, ready_flag=ready, stop_flag=stop
    )
