"""Event sources of kopf: pools and sessions, which a resync lists as well. The busier kinds have followers.

kopf does not report a deletion that its watch missed; the resync finds those of pools and sessions. Skills, ToolServers
and rollouts have no resync and must be complete before it: each has a reflector.

kopf delivers watch events and does nothing else: no patches, no finalizers, no state on objects.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import kopf
from kopf._cogs.structs.references import Insights, NamespaceName  # what kopf takes as `insights`

from mcp_exec_api.constants import GROUP, VERSION
from mcp_exec_common.kube.credentials import KubeCredentials
from mcp_exec_common.kube.pages import MAX_ANSWER_BYTES
from mcp_exec_common.kube.parsing import shorten
from mcp_exec_common.kube.reflector import NO_OBJECT
from mcp_exec_common.process.namespaces import ServedNamespaces
from mcp_exec_operator.cluster.kube.api import GONE_CODES
from mcp_exec_operator.cluster.kube.followers import OnEvent
from mcp_exec_operator.cluster.kube.observations import strip

log = logging.getLogger(__name__)

_EMPTY: Final[Any] = kopf.BodyEssence({})
_NO_NAMESPACE: Final = ("*",)
"""A pattern. Without a list of the cluster's namespaces it stands for none, and an empty list would stand for all."""


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
    *, credentials: KubeCredentials, on_event: Mapping[str, OnEvent], on_new_watch: Callable[[str], None]
) -> kopf.OperatorRegistry:
    """Build the registry of handlers, by the plural names of their custom resources.

    `on_new_watch` is called with the namespace when a watch begins. It reports none of the objects that exist.
    """
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        session = build_session(credentials, resources=on_event, on_new_watch=on_new_watch)
        return kopf.AiohttpSession(server=credentials.server, aiohttp_session=session)

    for resource, observe in on_event.items():
        kopf.on.event(GROUP, VERSION, resource, registry=registry, id=resource)(_build_handler(observe))
    return registry


def _build_handler(observe: OnEvent) -> Callable[..., Awaitable[None]]:
    async def handle(event: Any, **_: Any) -> None:
        body = event["object"]
        # kopf keeps an event for a second, and an object may have 1.5 MB
        event["object"] = strip(body)
        observe(body, event["type"] == "DELETED")

    return handle


def build_session(
    credentials: KubeCredentials, *, resources: Collection[str], on_new_watch: Callable[[str], None]
) -> aiohttp.ClientSession:
    """Build the session of kopf's requests, with the current token, which Kubernetes replaces every hour.

    Lists of `resources` return none: kopf would parse them, whatever is nested in them. The resync reads them. kopf
    cannot do without this: its field selectors hold for watches too, and a streaming list would bring all objects.

    A refusal in a namespace is passed on as a broken connection. kopf tries again after that, and after a refusal it
    would end all watches in all namespaces. So it would after an event that is nested more deeply than Python parses.
    """

    ends = tuple(f"/{resource}" for resource in resources)

    async def handle(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        if header := await credentials.authorization():
            request.headers["Authorization"] = header
        lists = request.url.path.endswith(ends) and "watch" not in request.url.query
        if lists:
            request.url = request.url.update_query(fieldSelector=NO_OBJECT)
        response = await send(request)
        if response.status in GONE_CODES and "namespaces" in request.url.parts:
            response.release()
            raise aiohttp.ClientConnectionError(f"{response.status} of {request.url.path}")
        if lists and response.status == 200:
            on_new_watch(request.url.parts[-2])
        if "watch" in request.url.query:
            response.content = _ShallowEvents(response.content)  # type: ignore[assignment]
        return response

    connector = aiohttp.TCPConnector(limit=0, ssl=credentials.build_tls_context())
    return aiohttp.ClientSession(connector=connector, headers={"Accept-Encoding": "identity"}, middlewares=(handle,))


@dataclass(frozen=True)
class _ShallowEvents:
    """The body of a watch, of which kopf reads lines of bounded size and depth."""

    content: aiohttp.StreamReader

    def __getattr__(self, name: str) -> Any:
        """Return what aiohttp reads of a body."""
        return getattr(self.content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield whole lines. Raises ClientPayloadError, after which kopf watches again, for one that is too long."""
        buffer = bytearray()
        async for chunk in self.content.iter_chunked(size):
            first, *others = chunk.split(b"\n")
            buffer += first
            for part in others:
                yield shorten(bytes(buffer)) + b"\n"
                buffer = bytearray(part)
            if len(buffer) > MAX_ANSWER_BYTES:
                raise aiohttp.ClientPayloadError(f"an event has more than {MAX_ANSWER_BYTES} bytes")


class _AllTasks(frozenset["asyncio.Task[Any]"]):
    """Tasks that kopf ignores at its end. It would wait five seconds for all that it did not start, and cancel them."""

    def __contains__(self, task: object) -> bool:
        return True


@asynccontextmanager
async def watching(
    *, registry: kopf.OperatorRegistry, namespaces: ServedNamespaces
) -> AsyncIterator["asyncio.Task[None]"]:
    """Run kopf while the context lasts, with watches in the namespaces that are in the set at any time.

    Yields the task of kopf, which ends earlier only if kopf fails. kopf has installed its signal handlers then.
    """
    for name in ("kopf.objects", "kopf.activities", "kopf._core"):
        logging.getLogger(name).setLevel(logging.WARNING)
    insights, stop = Insights(), asyncio.Event()
    following = asyncio.create_task(_follow(namespaces, insights), name="namespaces of kopf")
    try:
        tasks = await kopf.spawn_tasks(
            registry=registry,
            settings=build_settings(),
            namespaces=_NO_NAMESPACE,
            insights=insights,
            stop_flag=stop,
        )
        running = asyncio.create_task(kopf.run_tasks(tasks, ignored=_AllTasks()), name="watching")
        try:
            yield running
        finally:
            stop.set()
            await running
    finally:
        following.cancel()


async def _follow(namespaces: ServedNamespaces, insights: Insights) -> None:
    """Have kopf watch these namespaces, for ever. It begins and ends watches as the set changes."""
    changed = asyncio.Event()
    namespaces.changed.connect(changed.set)
    while True:
        async with insights.revised:
            insights.namespaces.clear()
            insights.namespaces.update(map(NamespaceName, namespaces))
            insights.revised.notify_all()
        await changed.wait()
        changed.clear()
