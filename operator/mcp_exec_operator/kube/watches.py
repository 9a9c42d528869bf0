"""What the operator hears of: executions, pools and nodes from kopf, and pods, of which most is told, from reflectors.

kopf is the source of watch events and no more: no patches, no finalizers, no state of its own on objects. Of a pod that
is used once there are five events or more; by a reflector they take a fifth off what an execution costs the operator.
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
from mcp_exec_operator.kube.api import POD_SELECTOR

OnEvent = Callable[[Object, bool], None]

_EMPTY: Final[Any] = kopf.BodyEssence({})


class NoDiffBase(kopf.DiffBaseStorage):
    """Remembers nothing of an object: without handlers of changes, nobody asks what changed."""

    def build(self, *, body: Any, extra_fields: Any = None) -> Any:
        """Nothing, instead of a deep copy of each object at each of its events."""
        return _EMPTY

    def fetch(self, *, body: Any) -> Any:
        """The same nothing: no difference."""
        return _EMPTY

    def store(self, *, body: Any, patch: Any, essence: Any) -> None:
        """Writes nothing."""


class NoProgress(kopf.ProgressStorage):
    """Remembers no handler's progress: ours end at once."""

    def fetch(self, *, key: Any, body: Any) -> None:
        """Nothing."""
        return

    def store(self, *, key: Any, record: Any, body: Any, patch: Any) -> None:
        """Writes nothing."""

    def purge(self, *, key: Any, body: Any, patch: Any) -> None:
        """Removes nothing."""

    def touch(self, *, body: Any, patch: Any, value: Any) -> None:
        """Touches nothing."""

    def clear(self, *, essence: Any) -> Any:
        """The argument as it is, not a copy."""
        return essence


def build_settings() -> kopf.OperatorSettings:
    """kopf's settings for a watch that costs little and gives up never."""
    settings = kopf.OperatorSettings()
    settings.queueing.idle_timeout = 1.0
    settings.queueing.exit_timeout = 1.0
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.networking.request_timeout = 10
    settings.networking.connect_timeout = 3
    settings.networking.error_backoffs = (0.1, 0.3, 1, 2, 5)
    settings.watching.chunk_size = 100
    settings.persistence.diffbase_storage = NoDiffBase()
    settings.persistence.progress_storage = NoProgress()
    settings.peering.standalone = True
    settings.process.ultimate_exiting_timeout = None
    return settings


def build_registry(
    *, credentials: KubeCredentials, on_execution: OnEvent, on_pool: OnEvent, on_node: OnEvent | None
) -> kopf.OperatorRegistry:
    """The handlers, each quick and without I/O. Without one for nodes, those are not watched."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await connection_info(credentials)

    def hear(tell: OnEvent) -> Callable[..., Awaitable[None]]:
        async def on_event(event: Any, **_: Any) -> None:
            tell(event["object"], event["type"] == "DELETED")

        return on_event

    for plural, tell in ((EXECUTIONS, on_execution), (POOLS, on_pool)):
        kopf.on.event(GROUP, VERSION, plural, registry=registry, id=plural)(hear(tell))
    if on_node is not None:
        kopf.on.event("", "v1", "nodes", registry=registry, id="nodes")(hear(on_node))
    return registry


@asynccontextmanager
async def pods_followed(*, kube: KubeClient, namespaces: tuple[str, ...], on_pod: OnEvent) -> AsyncIterator[None]:
    """Tells of the sandboxes' pods of these namespaces while the context stands."""
    async with AsyncExitStack() as stack:
        for namespace in namespaces:
            reflector = Reflector(
                kube=kube,
                path=resource_path("pods", namespace=namespace),
                selector=POD_SELECTOR,
                on_change=on_pod,
                transform=_identity,
            )
            await stack.enter_async_context(reflector.running())
        yield


def _identity(pod: Object) -> Object:
    """What of a pod is needed to tell that it is gone, should no watch have told: the inventory has the rest."""
    metadata = pod["metadata"]
    return {"metadata": {name: metadata.get(name) for name in ("name", "namespace", "uid", "labels")}}


async def connection_info(credentials: KubeCredentials) -> kopf.ConnectionInfo:
    """The credentials as they are now: kopf asks again when the API server no longer takes them."""
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
    """Runs kopf until `stop` is set. kopf cancels tasks that were made after it: let ours end before."""
    for name in ("kopf.objects", "kopf.activities", "kopf._core"):
        logging.getLogger(name).setLevel(logging.WARNING)
    await kopf.operator(
        registry=registry, settings=build_settings(), namespaces=namespaces, ready_flag=ready, stop_flag=stop
    )
