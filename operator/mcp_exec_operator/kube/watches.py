"""Event sources: kopf for custom resources that a resync lists as well, reflectors for core resources.

An event costs kopf 0.31 ms of CPU and a reflector 0.03 ms (kopf 1.45.2, objects of 2 KB), so pods, the busiest kind,
have a reflector. kopf does not report a deletion that its watch missed; the resync finds those of executions, pools and
sessions. Skills, ToolServers and rollouts have no resync and must be complete before it: each has a reflector.

kopf delivers watch events and does nothing else: no patches, no finalizers, no state on objects.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import kopf

from mcp_exec_api.constants import EXECUTIONS, GROUP, VERSION
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.credentials import KubeCredentials
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object, compact
from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_operator.kube.api import NETWORKING_GROUP, POD_SELECTOR
from mcp_exec_operator.kube.observations import strip

log = logging.getLogger(__name__)

OnEvent = Callable[[Object, bool], None]
"""Receives an object and whether it was deleted. Must not block."""
_NO_OBJECT: Final = "metadata.name=-"
"""Field selector that no object matches: `-` is no name."""
_EMPTY: Final[Any] = kopf.BodyEssence({})
_PAUSE_SECONDS: Final = 1.0
_NO_ACCESS_SECONDS: Final = 10.0
"""Pause while the namespace cannot be read: the rights in a namespace are deleted with it."""
OnDeletion = Callable[[str, bool], None]
"""Receives a namespace and whether it is being deleted. Must not block."""


class EmptyDiffBaseStorage(kopf.DiffBaseStorage):
    """Storage that keeps nothing: without change handlers nobody reads the differences, which take 0.16 ms an event."""

    def build(self, *, body: Any, extra_fields: Any = None) -> Any:
        """Return an empty essence instead of a deep copy of the object."""
        return _EMPTY

    def fetch(self, *, body: Any) -> Any:
        """Return None: nothing is stored."""
        return

    def store(self, *, body: Any, patch: Any, essence: Any) -> None:
        """Do nothing."""


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
    settings.watching.chunk_size = 10  # each object may have 1.5 MB
    settings.persistence.diffbase_storage = EmptyDiffBaseStorage()
    settings.peering.standalone = True
    settings.process.ultimate_exiting_timeout = None
    return settings


def build_registry(
    *, credentials: KubeCredentials, on_event: Mapping[str, OnEvent], on_new_watch: Callable[[], None]
) -> kopf.OperatorRegistry:
    """Build the registry of handlers, by the plural names of their custom resources.

    `on_new_watch` is called when a watch of executions begins, which reports none of those that exist.
    """
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        session = build_session(credentials, on_new_watch=on_new_watch)
        return kopf.AiohttpSession(server=credentials.server, aiohttp_session=session)

    for resource, observe in on_event.items():
        kopf.on.event(GROUP, VERSION, resource, registry=registry, id=resource)(_build_handler(observe))
    return registry


def _build_handler(observe: OnEvent) -> Callable[..., Awaitable[None]]:
    async def handle(event: Any, **_: Any) -> None:
        body = event["object"]
        # kopf keeps an event for a second, and with it the code or output of thousands of executions
        event["object"] = strip(body)
        observe(body, event["type"] == "DELETED")

    return handle


def build_session(credentials: KubeCredentials, *, on_new_watch: Callable[[], None]) -> aiohttp.ClientSession:
    """Build the session of kopf's requests, with the current token, which Kubernetes replaces every hour.

    Lists of executions return none: a namespace may have gigabytes of them, which the resync reads as a table. kopf
    cannot do without this: its field selectors hold for watches too, and a streaming list would bring all of them.
    """

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
async def follow_core(
    *, kube: KubeClient, namespaces: tuple[str, ...], on_pod: OnEvent, on_policy: OnEvent, on_node: OnEvent | None
) -> AsyncIterator[None]:
    """Pass every event of sandbox pods, NetworkPolicies and nodes on while the context lasts; without `on_node`, none
    of nodes.
    """

    def pass_on(pod: Object, deleted: bool) -> None:
        on_pod(compact(pod), deleted)  # caches keep it for the pod's whole life

    async with AsyncExitStack() as stack:

        async def follow(path: str, on_change: OnEvent, *, selector: str = "") -> None:
            reflector = Reflector(kube=kube, path=path, selector=selector, on_change=on_change, transform=strip)
            await stack.enter_async_context(reflector.run_in_background())

        for namespace in namespaces:
            await follow(resource_path("pods", namespace=namespace), pass_on, selector=POD_SELECTOR)
            await follow(resource_path("networkpolicies", namespace=namespace, group=NETWORKING_GROUP), on_policy)
        if on_node is not None:
            await follow(resource_path("nodes"), on_node)
        yield


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
                if await self.kube.find(path) is not None:
                    # without a version: that of a namespace is soon too old, since nothing changes it
                    async with aclosing(self.kube.watch(watched)) as events:
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
