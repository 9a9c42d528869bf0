"""Tool wrappers: keeps each namespace's bundle current and gives it to idle pods, so that no execution waits for it.

A pod becomes warm before it has the wrappers, and a pod that rejects them stays warm. The hash of a bundle identifies
the wrappers of a pod; the job of an execution names that hash.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_api.constants import MAX_WRAPPERS_BYTES
from mcp_exec_common.broker.client import BrokerClient, BrokerError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_common.supervisor.protocol import SandboxError
from mcp_exec_common.util.backoff import delay_after, delays
from mcp_exec_operator.kube.api import WritePriority
from mcp_exec_operator.pods.pod import Pod, PodState

log = logging.getLogger(__name__)

_MAX_CONCURRENT: Final = 4
"""Pods of one namespace that receive wrappers at the same time."""
_PUT_SECONDS: Final = 15.0
"""Longest time for a pod to write its wrappers."""
_BIND_SECONDS: Final = 2.0
"""Longest wait of an execution with tools for wrappers that its pod lacks."""
_FIRST_RETRY_SECONDS: Final = 1.0
_LAST_RETRY_SECONDS: Final = 5.0
"""Short, since code that runs before the next attempt has no wrappers."""
_GATHER_SECONDS: Final = 0.2
"""How long changes of ToolServers are gathered into one request to the broker."""


@dataclass(frozen=True, kw_only=True)
class WrapperBundle:
    """All wrappers of a namespace, encoded for a supervisor."""

    hash: str
    body: bytes


@dataclass(kw_only=True, eq=False)
class NamespaceBundle:
    """The newest wrappers of one namespace and the ToolServers that they are generated from."""

    bundle: WrapperBundle | None = None
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    """Set if the bundle may be outdated: the broker should be asked."""
    refreshed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while the broker has been asked since the last change of a ToolServer, with or without success."""
    has_failed: bool = False
    """Whether the broker's last response had no wrappers."""
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MAX_CONCURRENT))
    """Deliveries in flight. Namespaces share none, so that hanging pods of one delay no other."""
    _servers: dict[str, tuple[object, ...]] = field(default_factory=dict)
    """By ToolServer, the fields that its wrappers depend on."""

    @property
    def is_needed(self) -> bool:
        """Whether the namespace has ToolServers, or wrappers of former ones."""
        return self.bundle is not None or bool(self._servers)

    def observe(self, body: Object, *, deleted: bool) -> None:
        """Record a ToolServer; request a refresh if the wrappers may have changed."""
        name = body["metadata"]["name"]
        known = self._servers.pop(name, None)
        inputs = None if deleted else _wrapper_inputs(body)
        if inputs is not None:
            self._servers[name] = inputs
        if inputs != known:
            self.request_refresh()

    def request_refresh(self) -> None:
        """Have the broker asked at once. Executions with tools wait for its response."""
        self.wakeup.set()
        self.refreshed.clear()


@dataclass(kw_only=True, eq=False)
class WrapperDistributor:
    """Puts the bundles of all namespaces into pods."""

    sandboxes: SupervisorClient
    tasks: TaskRegistry
    write_priority: WritePriority
    bundles: Mapping[str, NamespaceBundle]
    """By namespace."""
    in_flight: dict[Pod, asyncio.Task[None]] = field(default_factory=dict)
    """Running requests; at most one per pod."""
    _deliveries: set[asyncio.Task[None]] = field(default_factory=set)

    def deliver(self, namespace: str, pod: Pod) -> None:
        """Start a task that gives an idle pod the newest wrappers, if it lacks them."""
        state = self.bundles.get(namespace)
        if state is None or state.bundle is None or pod.wrappers == state.bundle.hash:
            return
        task = self.tasks.spawn(self._deliver(namespace, state, pod), name=f"wrappers for {pod.name}")
        self._deliveries.add(task)
        task.add_done_callback(self._deliveries.discard)

    def close(self) -> None:
        """Cancel all deliveries."""
        for task in [*self._deliveries, *self.in_flight.values()]:
            task.cancel()

    async def ensure(self, namespace: str, pod: Pod) -> str | None:
        """Return the hash of the wrappers of a claimed pod, after giving it the newest if it lacks them.

        Takes little more than two seconds at most. A pod that did not get the newest in time keeps what it has.
        """
        state = self.bundles.get(namespace)
        if state is None:
            return pod.wrappers
        with suppress(TimeoutError):
            async with asyncio.timeout(_BIND_SECONDS):
                if state.is_needed:
                    if state.has_failed:
                        state.request_refresh()
                    await state.refreshed.wait()
                if (request := self.in_flight.get(pod)) is not None:
                    await asyncio.wait({request})
                if state.bundle is not None and pod.wrappers != state.bundle.hash:
                    await asyncio.wait({self._start_put(namespace, pod, state.bundle)})
        if (request := self.in_flight.get(pod)) is not None:
            request.cancel()  # it is unknown now which wrappers the pod has
            pod.wrappers = None
        return pod.wrappers

    async def _deliver(self, namespace: str, state: NamespaceBundle, pod: Pod) -> None:
        """Retry until the pod has the bundle, is no longer idle, or the bundle is outdated."""
        bundle = state.bundle
        for delay in delays(first=_FIRST_RETRY_SECONDS, last=_LAST_RETRY_SECONDS):
            async with state.slots:
                await self.write_priority.wait_until_idle()
                if pod.state not in (PodState.WARM, PodState.OWNED) or state.bundle is not bundle or bundle is None:
                    return
                if pod.wrappers == bundle.hash:
                    return
                await asyncio.wait({self.in_flight.get(pod) or self._start_put(namespace, pod, bundle)})
            if pod.wrappers == bundle.hash:
                return
            await asyncio.sleep(delay)

    def _start_put(self, namespace: str, pod: Pod, bundle: WrapperBundle) -> asyncio.Task[None]:
        request = self.tasks.spawn(self._put(namespace, pod, bundle), name=f"put wrappers into {pod.name}")
        self.in_flight[pod] = request
        request.add_done_callback(lambda _: self.in_flight.pop(pod, None))
        return request

    async def _put(self, namespace: str, pod: Pod, bundle: WrapperBundle) -> None:
        sandbox = self.sandboxes.get_connection(
            namespace=namespace, pod=pod.name, address=pod.address, digest=pod.token_sha256
        )
        try:
            # a former leader may have given it the bundle already
            pod.wrappers = await sandbox.get_wrappers_hash()
            if pod.wrappers != bundle.hash:
                await sandbox.put_wrappers(bundle.body, timeout_seconds=_PUT_SECONDS)
                pod.wrappers = bundle.hash
        except SandboxError as error:
            log.info("a pod did not take its wrappers: %s", error, extra={"pod": pod.name})


def _wrapper_inputs(body: Object) -> tuple[object, ...]:
    """Return the fields of a ToolServer that its wrappers depend on."""
    status = body.get("status") or {}
    return body["metadata"].get("generation"), status.get("catalogHash"), status.get("available")


@dataclass(kw_only=True, eq=False)
class BundleRefresher:
    """Keeps the bundles of all namespaces current and has new ones delivered to warm pods."""

    broker: BrokerClient
    distributor: WrapperDistributor
    refresh_seconds: float
    """Seconds between two requests if no ToolServer changes."""
    warm_pods: Callable[[str], Iterable[Pod]]
    """Returns the warm pods of a namespace."""

    async def run(self, namespace: str) -> None:
        """Keep the bundle of one namespace current, until cancelled."""
        state, failures = self.distributor.bundles[namespace], 0
        while True:
            wait = self.refresh_seconds
            if state.is_needed:
                try:
                    await self._refresh(namespace, state)
                    failures = 0
                except BrokerError as error:
                    failures += 1
                    wait = delay_after(failures, first=_FIRST_RETRY_SECONDS, last=_LAST_RETRY_SECONDS)
                    log.warning("no wrappers for namespace %s: %s", namespace, error, extra={"namespace": namespace})
                state.has_failed = failures > 0
                if not state.wakeup.is_set():
                    state.refreshed.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await state.wakeup.wait()
                    await asyncio.sleep(_GATHER_SECONDS)
            state.wakeup.clear()

    async def _refresh(self, namespace: str, state: NamespaceBundle) -> None:
        """Fetch the bundle and deliver it if it is new. Raises BrokerError."""
        response = await self.broker.get(f"/v1/namespaces/{namespace}/wrappers")
        digest, files = response.get("hash"), response.get("files")
        if not isinstance(digest, str) or not isinstance(files, dict):
            raise BrokerError("the broker's response has no wrappers")
        if state.bundle is not None and state.bundle.hash == digest:
            return
        body = json.dumps({"hash": digest, "files": files}).encode()
        if len(body) > MAX_WRAPPERS_BYTES:
            raise BrokerError(f"the wrappers have {len(body)} bytes, at most {MAX_WRAPPERS_BYTES} are allowed")
        state.bundle = WrapperBundle(hash=digest, body=body)
        log.info("new wrappers", extra={"namespace": namespace, "hash": digest, "files": len(files)})
        for pod in self.warm_pods(namespace):
            self.distributor.deliver(namespace, pod)
