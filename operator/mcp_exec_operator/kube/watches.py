"""Event sources: kopf for executions, pools and nodes; reflectors for pods, the busiest kind, and for policies.

kopf delivers watch events and does nothing else: no patches, no finalizers, no state on objects. A single-use pod
causes five events or more; reflectors instead of kopf save a fifth of the operator's CPU time per execution.

kopf would list executions whole before it watches them, and a namespace may have gigabytes of them. Its list gets an
answer without executions, and a resync reads what it would have reported.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import kopf

from mcp_exec_api.constants import EXECUTIONS, GROUP, POOLS, SESSIONS, VERSION
from mcp_exec_common.kube.client import KubeClient, custom_resource_path, resource_path
from mcp_exec_common.kube.credentials import KubeCredentials
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object, compact
from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_operator.kube.api import NETWORKING_GROUP, POD_SELECTOR, get_or_none

log = logging.getLogger(__name__)

OnEvent = Callable[[Object, bool], None]
"""Receives an object and whether it was deleted. Must not block."""
_NO_OBJECT: Final = "metadata.name=-"
"""Field selector that no object matches: `-` is no name."""
_IDENTITY: Final = ("namespace", "name", "uid", "resourceVersion")
_EMPTY: Final[Any] = kopf.BodyEssence({})
_PAUSE_SECONDS: Final = 1.0
_NO_ACCESS_SECONDS: Final = 10.0
"""Pause while the namespace cannot be read: the rights in a namespace are deleted with it."""
OnDeletion = Callable[[str, bool], None]
"""Receives a namespace and whether it is being deleted. Must not block."""


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
    settings.watching.chunk_size = 10  # pools and nodes, each of up to 1.5 MB
    settings.persistence.diffbase_storage = EmptyDiffBaseStorage()
    settings.persistence.progress_storage = EmptyProgressStorage()
    settings.peering.standalone = True
    settings.process.ultimate_exiting_timeout = None
    return settings


def build_registry(
    *,
    credentials: KubeCredentials,
    on_execution: OnEvent,
    on_pool: OnEvent,
    on_node: OnEvent | None,
    on_new_watch: Callable[[], None],
) -> kopf.OperatorRegistry:
    """Build the registry of handlers. They must be quick and do no I/O. Without `on_node`, nodes are not watched.

    `on_new_watch` is called when a watch of executions begins, which reports none of those that exist.
    """
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        session = build_session(credentials, on_new_watch=on_new_watch)
        return kopf.AiohttpSession(server=credentials.server, aiohttp_session=session)

    @kopf.on.event(GROUP, VERSION, EXECUTIONS, registry=registry, id=EXECUTIONS)
    async def handle_execution(event: Any, **_: Any) -> None:
        body = event["object"]
        # kopf keeps an event for a second, and with it the code or output of thousands of executions
        event["object"] = {"metadata": {name: body["metadata"].get(name) for name in _IDENTITY}}
        on_execution(body, event["type"] == "DELETED")

    def build_handler(on_event: OnEvent) -> Callable[..., Awaitable[None]]:
        async def handle(event: Any, **_: Any) -> None:
            on_event(event["object"], event["type"] == "DELETED")

        return handle

    kopf.on.event(GROUP, VERSION, POOLS, registry=registry, id=POOLS)(build_handler(on_pool))
    if on_node is not None:
        kopf.on.event("", "v1", "nodes", registry=registry, id="nodes")(build_handler(on_node))
    return registry


def build_session(credentials: KubeCredentials, *, on_new_watch: Callable[[], None]) -> aiohttp.ClientSession:
    """Build the session of kopf's requests, with the current token. Lists of executions return none."""

    async def handle(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        if header := await credentials.authorization():
            request.headers["Authorization"] = header
        lists = request.url.path.endswith(f"/{EXECUTIONS}") and "watch" not in request.url.query
        if lists:
            request.url = request.url.update_query(fieldSelector=_NO_OBJECT)
        response = await send(request)
        if lists and response.status == 200:
            on_new_watch()
        return response

    connector = aiohttp.TCPConnector(limit=0, ssl=credentials.build_tls_context())
    return aiohttp.ClientSession(connector=connector, headers={"Accept-Encoding": "identity"}, middlewares=(handle,))


@asynccontextmanager
async def follow_pods(*, kube: KubeClient, namespaces: tuple[str, ...], on_pod: OnEvent) -> AsyncIterator[None]:
    """Pass every event of sandbox pods in these namespaces to `on_pod` while the context lasts."""

    def pass_on(pod: Object, deleted: bool) -> None:
        on_pod(compact(pod), deleted)  # caches keep it for the pod's whole life

    async with AsyncExitStack() as stack:
        for namespace in namespaces:
            reflector = Reflector(
                kube=kube,
                path=resource_path("pods", namespace=namespace),
                selector=POD_SELECTOR,
                on_change=pass_on,
                transform=_strip_pod,
            )
            await stack.enter_async_context(reflector.run_in_background())
        yield


@asynccontextmanager
async def follow_sessions(*, kube: KubeClient, namespaces: tuple[str, ...], on_session: OnEvent) -> AsyncIterator[None]:
    """Pass every event of sessions in these namespaces to `on_session` while the context lasts."""
    async with AsyncExitStack() as stack:
        for namespace in namespaces:
            path = custom_resource_path(SESSIONS, namespace=namespace)
            reflector = Reflector(kube=kube, path=path, on_change=on_session, transform=_strip_item)
            await stack.enter_async_context(reflector.run_in_background())
        yield


@asynccontextmanager
async def follow_policies(*, kube: KubeClient, namespaces: tuple[str, ...], on_policy: OnEvent) -> AsyncIterator[None]:
    """Pass every event of NetworkPolicies in these namespaces to `on_policy` while the context lasts."""
    async with AsyncExitStack() as stack:
        for namespace in namespaces:
            path = resource_path("networkpolicies", namespace=namespace, group=NETWORKING_GROUP)
            reflector = Reflector(kube=kube, path=path, on_change=on_policy, transform=_strip_item)
            await stack.enter_async_context(reflector.run_in_background())
        yield


def _strip_item(item: Object) -> Object:
    """Return what a deletion missed by the watch has to name."""
    metadata = item["metadata"]
    return {"metadata": {name: metadata.get(name) for name in ("name", "namespace", "uid")}}


def _strip_pod(pod: Object) -> Object:
    """Return what a deletion missed by the watch has to name; PodCache keeps everything else."""
    metadata = pod["metadata"]
    return {"metadata": {name: metadata.get(name) for name in ("name", "namespace", "uid", "labels")}}


async def watch(
    *, registry: kopf.OperatorRegistry, namespaces: tuple[str, ...], ready: asyncio.Event, stop: asyncio.Event
) -> None:
    """Run kopf until `stop` is set. At its end kopf cancels all tasks created after its start: end them before."""
    for name in ("kopf.objects", "kopf.activities", "kopf._core"):
        logging.getLogger(name).setLevel(logging.WARNING)
    await kopf.operator(
        registry=registry, settings=build_settings(), namespaces=namespaces, ready_flag=ready, stop_flag=stop
    )


@dataclass(kw_only=True, eq=False)
class NamespaceFollower:
    """Reports when a namespace is being deleted, and when it exists again."""

    kube: KubeClient
    namespace: str
    on_deletion: OnDeletion

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the namespace while the context lasts."""
        task = asyncio.create_task(self._run(), name=f"namespace {self.namespace}")
        try:
            yield
        finally:
            while not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=1)

    async def _run(self) -> None:
        path = resource_path("namespaces", name=self.namespace)
        # a namespace of its own is all that a Role in it allows to watch; the path with a field selector needs a
        # ClusterRole
        watched = path.replace("/api/v1/", "/api/v1/watch/", 1)
        while True:
            pause = _PAUSE_SECONDS
            try:
                body = await get_or_none(self.kube, path)
                if body is not None:
                    self._report(body)
                    version = body["metadata"]["resourceVersion"]
                    async with aclosing(self.kube.watch(watched, resource_version=version)) as events:
                        async for event in events:
                            if event["type"] != "BOOKMARK":
                                self._report(event["object"], deleted=event["type"] == "DELETED")
            except (ApiError, aiohttp.ClientError, TimeoutError, ValueError) as error:
                log.info("the namespace %s cannot be watched: %s", self.namespace, error)
                pause = _NO_ACCESS_SECONDS if isinstance(error, ApiError) and error.code == 403 else _PAUSE_SECONDS
            await asyncio.sleep(pause)

    def _report(self, body: Object, *, deleted: bool = False) -> None:
        self.on_deletion(self.namespace, deleted or bool(body["metadata"].get("deletionTimestamp")))


@asynccontextmanager
async def follow_namespaces(
    *, kube: KubeClient, namespaces: tuple[str, ...], on_deletion: OnDeletion
) -> AsyncIterator[None]:
    """Report the deletion of these namespaces to `on_deletion` while the context lasts."""
    async with AsyncExitStack() as stack:
        for namespace in namespaces:
            follower = NamespaceFollower(kube=kube, namespace=namespace, on_deletion=on_deletion)
            await stack.enter_async_context(follower.running())
        yield
