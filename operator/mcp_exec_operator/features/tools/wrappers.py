"""Tool wrappers: keeps each namespace's bundles current and gives them to idle pods, so that no execution waits.

There is a bundle for each language, which is made once a pod runs that language.

A pod becomes warm before it has the wrappers, and a pod that rejects them stays warm. The hash of a bundle identifies
the wrappers of a pod; the job of an execution names that hash.

Watches of executions and of ToolServers have no common order, so an execution can arrive before the change that made
its server available. Therefore the broker is asked once more before an execution runs whose tools the bundle lacks.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, NamedTuple, Self

from mcp_exec_api.constants import DEFAULT_LANGUAGE, LANGUAGES, MAX_WRAPPERS_BYTES, Language
from mcp_exec_common.broker.client import BrokerClient, BrokerError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_common.supervisor.protocol import SandboxError
from mcp_exec_common.util.backoff import delay_after, delays
from mcp_exec_operator.cluster.kube.api import WritePriority
from mcp_exec_operator.core.pods.pod import Pod, PodState
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.features.tools.unmatched import ToolNames
from mcp_exec_tools.patterns import NamePatterns, ToolPatterns

log = logging.getLogger(__name__)

_MAX_CONCURRENT: Final = 4
"""Pods of one namespace that receive wrappers at the same time."""
_PUT_SECONDS: Final = 15.0
"""Longest time for a pod to write its wrappers."""
_ASK_SECONDS: Final = 5.0
"""Longest wait of an execution with tools for the broker's wrappers."""
_AGAIN_SECONDS: Final = 0.25
"""Pause of such an execution before the broker is asked again."""
_BIND_SECONDS: Final = 10.0
"""Longest wait of an execution with tools for its pod to take them. A busy node needs seconds to compile them."""
_START_SECONDS: Final = 60.0
"""Time in which a broker that is installed with the operator becomes ready, so that there is nothing to warn of."""
_FIRST_RETRY_SECONDS: Final = 1.0
_LAST_RETRY_SECONDS: Final = 5.0
"""Short, since code that runs before the next attempt has no wrappers."""
_GATHER_SECONDS: Final = 0.2
"""How long changes of ToolServers are gathered into one request to the broker."""


BundleKey = tuple[str, Language]
"""Namespace and language of a bundle."""


@dataclass(frozen=True, kw_only=True)
class WrapperBundle:
    """All wrappers of a namespace in one language, encoded for a supervisor."""

    hash: str
    body: bytes
    tools: Mapping[str, Sequence[str]]
    """Sorted names of the tools that it has, by server."""


class _WrapperInputs(NamedTuple):
    """The fields of a ToolServer that its wrappers depend on."""

    generation: object
    catalog_hash: object
    is_available: bool

    @classmethod
    def from_object(cls, body: Object) -> Self:
        status = body.get("status") or {}
        return cls(body["metadata"].get("generation"), status.get("catalogHash"), status.get("available") is True)


@dataclass(kw_only=True, eq=False)
class NamespaceBundle:
    """The newest wrappers of one namespace in one language, and the ToolServers that they are generated from."""

    is_used: bool = True
    """Whether a pod has run the language, so that somebody needs the bundle."""
    bundle: WrapperBundle | None = None
    listed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set after the first list of the namespace's ToolServers."""
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    """Set if the bundle may be outdated: the broker should be asked."""
    refreshed: asyncio.Event = field(init=False)
    """Set when the broker has been asked since the last request, with or without success. Each request replaces it."""
    has_failed: bool = False
    """Whether the broker's last response had no wrappers, or not those of all available servers."""
    is_urgent: bool = False
    """Whether an execution waits, so that changes are not gathered."""
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MAX_CONCURRENT))
    """Deliveries in flight. Namespaces share none, so that hanging pods of one delay no other."""
    _servers: dict[str, _WrapperInputs] = field(default_factory=dict)
    """By ToolServer."""
    _next: asyncio.Event = field(default_factory=asyncio.Event)
    """Set after the next refresh to begin."""

    def __post_init__(self) -> None:
        self.refreshed = self._next

    @property
    def is_needed(self) -> bool:
        """Whether the namespace has ToolServers or wrappers of former ones and pods for them, or an execution waits."""
        return self.bundle is not None or (self.is_used and bool(self._servers)) or self.is_urgent

    @property
    def missing(self) -> frozenset[str]:
        """Available servers that the bundle lacks."""
        available = {name for name, inputs in self._servers.items() if inputs.is_available}
        return frozenset(available).difference(self.bundle.tools if self.bundle is not None else ())

    def lacks(self, tools: Iterable[str]) -> bool:
        """Return whether one of the patterns names only servers that the bundle lacks."""
        servers = self.bundle.tools if self.bundle is not None else ()
        named = {pattern.partition(".")[0] for pattern in tools}
        patterns = NamePatterns(named)
        return not named.issubset(found for server in servers for found in patterns.find(server))

    def misses(self, tools: Collection[str]) -> bool:
        """Return whether the bundle lacks an available server that one of the patterns names."""
        patterns = ToolPatterns(tools)
        return any(patterns.match_server(server) for server in self.missing)

    def list_names(self) -> ToolNames | None:
        """Return the names of all servers and tools; None if the broker's last response did not have all of them."""
        if not self.listed.is_set() or self.has_failed or (self.bundle is None and self._servers):
            return None
        return ToolNames({**dict.fromkeys(self._servers), **(self.bundle.tools if self.bundle is not None else {})})

    def observe(self, body: Object, *, deleted: bool) -> None:
        """Record a ToolServer; request a refresh if the wrappers may have changed."""
        name = body["metadata"]["name"]
        known = self._servers.pop(name, None)
        inputs = None if deleted else _WrapperInputs.from_object(body)
        if inputs is not None:
            self._servers[name] = inputs
        if inputs != known:
            self.request_refresh()

    def request_refresh(self, *, is_urgent: bool = False) -> None:
        """Have the broker asked. Executions with tools wait for its response."""
        self.is_urgent |= is_urgent
        self.changed()
        self.refreshed = self._next

    def changed(self) -> None:
        """Ask the broker soon."""
        self.wakeup.set()

    def begin_refresh(self) -> asyncio.Event:
        """Return the event to set when the refresh that begins now has ended. Later requests wait for the next one."""
        self.is_urgent = False
        turn, self._next = self._next, asyncio.Event()
        return turn


def build_bundles(namespace: str) -> dict[BundleKey, NamespaceBundle]:
    """Return the bundles of a namespace. Only that of the default language is needed before a pod runs its language."""
    return {(namespace, each): NamespaceBundle(is_used=each == DEFAULT_LANGUAGE) for each in LANGUAGES}


@dataclass(kw_only=True, eq=False)
class WrapperDistributor:
    """Puts bundles into pods."""

    sandboxes: SupervisorClient
    tasks: TaskRegistry
    write_priority: WritePriority
    bundles: Mapping[BundleKey, NamespaceBundle]
    in_flight: dict[Pod, asyncio.Task[None]] = field(default_factory=dict)
    """Running requests; at most one per pod."""
    _deliveries: set[asyncio.Task[None]] = field(default_factory=set)

    def deliver_to(self, pool: Pool, pod: Pod) -> None:
        """Give an idle pod of a pool the newest wrappers of the pool's language."""
        self.deliver((pool.namespace, pool.shape.language), pod)

    def deliver(self, key: BundleKey, pod: Pod) -> None:
        """Start a task that gives an idle pod the newest wrappers, if it lacks them."""
        if (state := self.bundles.get(key)) is None:
            return
        if not state.is_used:
            state.is_used = True
            state.changed()
        if state.bundle is None or pod.use.wrappers == state.bundle.hash:
            return
        task = self.tasks.spawn(self._deliver(key[0], state, pod), name=f"wrappers for {pod.name}")
        self._deliveries.add(task)
        task.add_done_callback(self._deliveries.discard)

    def close(self) -> None:
        """Cancel all deliveries."""
        for task in [*self._deliveries, *self.in_flight.values()]:
            task.cancel()

    async def ensure(self, key: BundleKey, pod: Pod, tools: Collection[str]) -> str | None:
        """Return the hash of the wrappers of a claimed pod, after giving it the newest if it lacks them.

        `tools` are the patterns of its execution. Takes little more than 15 seconds at most. A pod that did not get the
        newest in time keeps what it has.
        """
        state, namespace = self.bundles.get(key), key[0]
        if state is None:
            return pod.use.wrappers
        state.is_used = True
        extra = {"namespace": namespace, "pod": pod.name}
        try:
            async with asyncio.timeout(_ASK_SECONDS):
                await self._refresh(state, tools)
        except TimeoutError:
            log.warning("an execution does not wait longer for the wrappers of its tools", extra=extra)
        try:
            async with asyncio.timeout(_BIND_SECONDS):
                if (request := self.in_flight.get(pod)) is not None:
                    await asyncio.wait({request})
                if state.bundle is not None and pod.use.wrappers != state.bundle.hash:
                    await asyncio.wait({self._start_put(namespace, pod, state.bundle)})
        except TimeoutError:
            log.warning("a pod did not take its wrappers within %g s", _BIND_SECONDS, extra=extra)
        if (request := self.in_flight.get(pod)) is not None:
            request.cancel()  # it is unknown now which wrappers the pod has
            pod.use.wrappers = None
        return pod.use.wrappers

    def list_names(self, key: BundleKey) -> ToolNames | None:
        """Return the names of a namespace's servers and tools; None if they are not known now."""
        state = self.bundles.get(key)
        return None if state is None else state.list_names()

    async def _refresh(self, state: NamespaceBundle, tools: Collection[str]) -> None:
        """Wait until the bundle has what the broker has for these patterns, and all available servers of them."""
        await state.listed.wait()
        if state.has_failed or state.lacks(tools):
            state.request_refresh(is_urgent=True)
        if state.is_needed:
            await state.refreshed.wait()
        while state.misses(tools):
            await asyncio.sleep(_AGAIN_SECONDS)
            state.request_refresh(is_urgent=True)
            await state.refreshed.wait()

    async def _deliver(self, namespace: str, state: NamespaceBundle, pod: Pod) -> None:
        """Retry until the pod has the bundle, is no longer idle, or the bundle is outdated."""
        bundle = state.bundle
        for delay in delays(first=_FIRST_RETRY_SECONDS, last=_LAST_RETRY_SECONDS):
            async with state.slots:
                await self.write_priority.wait_until_idle()
                if pod.state not in (PodState.WARM, PodState.OWNED) or state.bundle is not bundle or bundle is None:
                    return
                if pod.use.wrappers == bundle.hash:
                    return
                await asyncio.wait({self.in_flight.get(pod) or self._start_put(namespace, pod, bundle)})
            if pod.use.wrappers == bundle.hash:
                return
            await asyncio.sleep(delay)

    def _start_put(self, namespace: str, pod: Pod, bundle: WrapperBundle) -> asyncio.Task[None]:
        request = self.tasks.spawn(self._put(namespace, pod, bundle), name=f"put wrappers into {pod.name}")
        self.in_flight[pod] = request
        request.add_done_callback(lambda _: self.in_flight.pop(pod, None))
        return request

    async def _put(self, namespace: str, pod: Pod, bundle: WrapperBundle) -> None:
        sandbox = self.sandboxes.get_connection(
            namespace=namespace, pod=pod.name, address=pod.seen.address, digest=pod.seen.token_sha256
        )
        try:
            # a former leader may have given it the bundle already
            pod.use.wrappers = await sandbox.get_wrappers_hash()
            if pod.use.wrappers != bundle.hash:
                await sandbox.put_wrappers(bundle.body, timeout_seconds=_PUT_SECONDS)
                pod.use.wrappers = bundle.hash
        except SandboxError as error:
            log.info("a pod did not take its wrappers: %s", error, extra={"pod": pod.name})


@dataclass(kw_only=True, eq=False)
class BundleRefresher:
    """Keeps bundles current and has new ones delivered to warm pods."""

    broker: BrokerClient
    distributor: WrapperDistributor
    refresh_seconds: float
    """Seconds between two requests if no ToolServer changes."""
    warm_pods: Callable[[str, Language], Iterable[Pod]]
    """Returns the warm pods of a namespace that run a language."""

    async def run(self, key: BundleKey) -> None:
        """Keep one bundle current, until cancelled."""
        state, failures, problem = self.distributor.bundles[key], 0, ("", logging.INFO)
        namespace = key[0]
        began = monotonic()
        while True:
            wait = self.refresh_seconds
            if state.is_needed:
                turn = state.begin_refresh()
                try:
                    await self._refresh(key, state)
                except BrokerError as error:
                    failures += 1
                    wait = delay_after(failures, first=_FIRST_RETRY_SECONDS, last=_LAST_RETRY_SECONDS)
                    is_starting = state.bundle is None and monotonic() - began < _START_SECONDS
                    if problem != (found := (str(error), logging.INFO if is_starting else logging.WARNING)):
                        problem = found
                        fields = {"namespace": namespace}
                        log.log(problem[1], "no wrappers for namespace %s: %s", namespace, problem[0], extra=fields)
                else:
                    failures, problem = 0, ("", logging.INFO)
                state.has_failed = failures > 0
                turn.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await state.wakeup.wait()
                    if not state.is_urgent:
                        await asyncio.sleep(_GATHER_SECONDS)
            state.wakeup.clear()

    async def _refresh(self, key: BundleKey, state: NamespaceBundle) -> None:
        """Fetch the bundle and deliver it if it is new. Raises BrokerError, also if it lacks an available server."""
        namespace, language = key
        params: dict[str, str] = {"language": language} if language != DEFAULT_LANGUAGE else {}
        params |= {"hash": state.bundle.hash} if state.bundle is not None else {}
        response = await self.broker.get(f"/v1/namespaces/{namespace}/wrappers", params=params)
        digest, files = response.get("hash"), response.get("files")
        if state.bundle is None or state.bundle.hash != digest:
            if not isinstance(digest, str) or not isinstance(files, dict):
                raise BrokerError("the broker's response has no wrappers")
            body = json.dumps({"hash": digest, "files": files}).encode()
            if len(body) > MAX_WRAPPERS_BYTES:
                raise BrokerError(f"the wrappers have {len(body)} bytes, at most {MAX_WRAPPERS_BYTES} are allowed")
            self._replace(key, state, WrapperBundle(hash=digest, body=body, tools=_list_tools(files)))
        if state.missing:
            raise BrokerError(f"the broker has not listed available servers yet: {', '.join(sorted(state.missing))}")

    def _replace(self, key: BundleKey, state: NamespaceBundle, bundle: WrapperBundle) -> None:
        """Use a new bundle, unless it has lost an available server: a replica that starts has not listed all yet."""
        before, missing = state.bundle, state.missing
        state.bundle = bundle
        if before is not None and (lost := state.missing - missing):
            state.bundle = before
            raise BrokerError(f"the broker has not listed available servers yet: {', '.join(sorted(lost))}")
        fields = {"namespace": key[0], "language": key[1], "hash": bundle.hash, "servers": len(bundle.tools)}
        log.info("new wrappers", extra=fields)
        for pod in self.warm_pods(*key):
            self.distributor.deliver(key, pod)


def _list_tools(files: Mapping[str, object]) -> dict[str, list[str]]:
    """Return the names of the tools in the catalog of a bundle, by server. Raises BrokerError."""
    try:
        catalog = json.loads(str(files.get("catalog.json", '{"servers": []}')))
        return {str(each["server"]): sorted(str(tool["name"]) for tool in each["tools"]) for each in catalog["servers"]}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BrokerError("the wrappers have no valid catalog") from error
