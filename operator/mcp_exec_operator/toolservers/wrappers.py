"""Puts the wrappers of a namespace's tools into the pods that stand idle, so that no execution waits for them.

One task a namespace keeps the newest bundle, which the broker makes. A pod is warm before it has them; one that does
not take them stays warm. What a pod has is known by its hash, and a job names that hash.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_api.constants import MAX_WRAPPERS_BYTES
from mcp_exec_common.broker.client import BrokerClient, BrokerError
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_common.supervisor.protocol import SandboxError
from mcp_exec_operator.kube.write_priority import WritePriority
from mcp_exec_operator.pods.cache import Pod, PodState
from mcp_exec_operator.pools.partition import Partition

log = logging.getLogger(__name__)

_AT_ONCE: Final = 4
"""Pods that are given wrappers at the same time."""
_PUT_SECONDS: Final = 15.0
"""How long a pod may take to write them."""
_BIND_SECONDS: Final = 2.0
"""How long an execution with tools waits for them, where its pod has none or older ones."""
_FIRST_PAUSE: Final = 1.0
_LAST_PAUSE: Final = 30.0
_GATHER_SECONDS: Final = 0.2
"""How long changes of servers are gathered before the broker is asked."""


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """All wrappers of a namespace, as a supervisor takes them."""

    hash: str
    body: bytes


@dataclass(kw_only=True, eq=False)
class _Shelf:
    """What is known of one namespace."""

    asked_for: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the broker should be asked."""
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while the broker has been asked since the servers changed last, with or without success."""
    bundle: Bundle | None = None


@dataclass(kw_only=True, eq=False)
class Wrappers:
    """The bundles of all namespaces, and their way into pods."""

    brokers: BrokerClient
    sandboxes: SupervisorClient
    tasks: TaskRegistry
    write_priority: WritePriority
    """What deliveries are put off for."""
    namespaces: tuple[str, ...]
    refresh_seconds: float
    pools: Callable[[], Iterable[Partition]]
    """All pools."""
    has_servers: Callable[[str], bool]
    """Whether a namespace has any ToolServer."""
    _shelves: dict[str, _Shelf] = field(default_factory=dict)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))
    _deliveries: set[asyncio.Task[None]] = field(default_factory=set)
    _flights: dict[Pod, asyncio.Task[bool]] = field(default_factory=dict)
    """What is under way, so that nobody sends the same twice."""

    def __post_init__(self) -> None:
        self._shelves = {namespace: _Shelf() for namespace in self.namespaces}

    def ask(self, namespace: str) -> None:
        """The servers of the namespace have changed: their wrappers may have."""
        if (shelf := self._shelves.get(namespace)) is not None:
            shelf.asked_for.set()
            shelf.answered.clear()

    def became_warm(self, pool: Partition, pod: Pod) -> None:
        """Gives a pod that stands idle what it lacks, in a task."""
        shelf = self._shelves.get(pool.namespace)
        if shelf is not None and shelf.bundle is not None and pod.wrappers != shelf.bundle.hash:
            task = self.tasks.spawn(self._deliver(pool.namespace, shelf, pod), name=f"wrappers for {pod.name}")
            self._deliveries.add(task)
            task.add_done_callback(self._deliveries.discard)

    def close(self) -> None:
        """Nothing is delivered any more."""
        for task in [*self._deliveries, *self._flights.values()]:
            task.cancel()

    async def ensure(self, namespace: str, pod: Pod) -> str | None:
        """The hash of the wrappers that a pod has that was just taken; where it lacks any, it is given them first.

        It never takes much more than two seconds, and a pod that could not be given them has what it has.
        """
        shelf = self._shelves.get(namespace)
        if shelf is None:
            return pod.wrappers
        with suppress(TimeoutError):
            async with asyncio.timeout(_BIND_SECONDS):
                if shelf.bundle is not None or self.has_servers(namespace):
                    await shelf.answered.wait()
                if (flight := self._flights.get(pod)) is not None:
                    await asyncio.wait({flight})
                if shelf.bundle is not None and pod.wrappers != shelf.bundle.hash:
                    await asyncio.wait({self._flight(namespace, pod, shelf.bundle)})
        if (flight := self._flights.get(pod)) is not None:
            flight.cancel()  # nobody knows what it has then
            pod.wrappers = None
        return pod.wrappers

    async def keep(self, namespace: str) -> None:
        """Keeps the namespace's bundle, and has it delivered, until it is cancelled."""
        shelf, pause = self._shelves[namespace], _FIRST_PAUSE
        while True:
            wait = self.refresh_seconds
            if shelf.bundle is not None or self.has_servers(namespace):
                try:
                    await self._fetch(namespace, shelf)
                    pause = _FIRST_PAUSE
                except BrokerError as error:
                    log.warning("no wrappers for namespace %s: %s", namespace, error, extra={"namespace": namespace})
                    wait, pause = pause, min(pause * 2, _LAST_PAUSE)
                if not shelf.asked_for.is_set():
                    shelf.answered.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await shelf.asked_for.wait()
                    await asyncio.sleep(_GATHER_SECONDS)
            shelf.asked_for.clear()

    async def _fetch(self, namespace: str, shelf: _Shelf) -> None:
        answer = await self.brokers.get(f"/v1/namespaces/{namespace}/wrappers")
        found, files = answer.get("hash"), answer.get("files")
        if not isinstance(found, str) or not isinstance(files, dict):
            raise BrokerError("the broker answers no wrappers")
        if shelf.bundle is not None and shelf.bundle.hash == found:
            return
        body = json.dumps({"hash": found, "files": files}).encode()
        if len(body) > MAX_WRAPPERS_BYTES:
            raise BrokerError(f"the wrappers have {len(body)} bytes, allowed are {MAX_WRAPPERS_BYTES}")
        shelf.bundle = Bundle(hash=found, body=body)
        log.info("new wrappers", extra={"namespace": namespace, "hash": found, "files": len(files)})
        for pool in self.pools():
            if pool.namespace == namespace:
                for part in pool.mixture:
                    for pod in part.inventory.all(PodState.WARM):
                        self.became_warm(part, pod)

    async def _deliver(self, namespace: str, shelf: _Shelf, pod: Pod) -> None:
        """Tries until the pod has the newest, or is idle no longer."""
        pause, bundle = _FIRST_PAUSE, shelf.bundle
        while pod.state is PodState.WARM and shelf.bundle is bundle and bundle is not None:
            async with self._slots:
                await self.write_priority.wait_until_idle()
                if pod.state is not PodState.WARM or pod.wrappers == bundle.hash:
                    return
                flight = self._flights.get(pod) or self._flight(namespace, pod, bundle)
                await asyncio.wait({flight})
            if pod.wrappers == bundle.hash:
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LAST_PAUSE)

    def _flight(self, namespace: str, pod: Pod, bundle: Bundle) -> asyncio.Task[bool]:
        flight = self.tasks.spawn(self._put(namespace, pod, bundle), name=f"put wrappers into {pod.name}")
        self._flights[pod] = flight
        flight.add_done_callback(lambda _: self._flights.pop(pod, None))
        return flight

    async def _put(self, namespace: str, pod: Pod, bundle: Bundle) -> bool:
        sandbox = self.sandboxes.get_connection(namespace=namespace, pod=pod.name, address=pod.address)
        try:
            # an operator before this one may have given them
            pod.wrappers = await sandbox.get_wrappers_hash()
            if pod.wrappers != bundle.hash:
                await sandbox.put_wrappers(bundle.body, timeout_seconds=_PUT_SECONDS)
                pod.wrappers = bundle.hash
        except SandboxError as error:
            log.info("a pod was given no wrappers: %s", error, extra={"pod": pod.name})
            return False
        return True
