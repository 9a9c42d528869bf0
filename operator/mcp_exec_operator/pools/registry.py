"""All pools of the served namespaces, each with its keeper."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic

from mcp_exec_api.constants import LABEL_POOL
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey, object_key
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_operator.pods.cache import Pod, PodState
from mcp_exec_operator.pods.nodes import NodeCache
from mcp_exec_operator.pools.controller import PoolController
from mcp_exec_operator.pools.partition import Partition


@dataclass(kw_only=True, eq=False)
class PoolRegistry:
    """Finds a pool by its key, takes in what watches and lists tell, and starts and ends the keepers."""

    tasks: TaskRegistry
    make_keeper: Callable[[Partition], PoolController]
    nodes: NodeCache = field(default_factory=NodeCache)
    opened: bool = False
    """Whether keepers work: not before the first sweep, which tells what pods executions have."""
    _pools: dict[ObjectKey, Partition] = field(default_factory=dict)
    _keepers: dict[Partition, PoolController] = field(default_factory=dict)
    """Each part of a pool that has variants has its own."""
    _running: dict[Partition, asyncio.Task[None]] = field(default_factory=dict)

    def get(self, key: ObjectKey) -> Partition:
        """The pool of that namespace and name; one that does not exist yet is empty and may come to be."""
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = Partition(namespace=key[0], name=key[1], nodes=self.nodes)
            self._keepers[pool] = self.make_keeper(pool)
        return pool

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._pools.values()))

    def warm_pods(self, namespace: str) -> list[Pod]:
        """Return the warm pods of all pools of a namespace."""
        return [
            pod
            for pool in self
            if pool.namespace == namespace
            for part in pool.mixture
            for pod in part.inventory.all(PodState.WARM)
        ]

    def discard(self, pool: Partition) -> None:
        """Forgets a pool that does not exist, that has no pods, and for which nobody waits."""
        key = (pool.namespace, pool.name)
        for part in pool.mixture.discard():
            self._end(part)
        base = pool.mixture.base
        if base.newest is None and not pool.mixture.queued and not pool.mixture.counts.total:
            self._pools.pop(key, None)
            self._end(base)

    def observe_pool(self, body: Object, *, deleted: bool) -> None:
        """Takes in a pool's object."""
        pool = self.get(object_key(body))
        if deleted:
            if pool.uid == body["metadata"]["uid"]:
                pool.remove()
                self.discard(pool)
            return
        pool.configure(body)
        self._start(pool)

    def observe_pod(self, item: Object, *, deleted: bool) -> Pod | None:
        """Takes in a pod's object; pods without a pool's label are none of ours."""
        name = (item["metadata"].get("labels") or {}).get(LABEL_POOL)
        if not name:
            return None
        pool = self.get((item["metadata"]["namespace"], name)).mixture.part_of(item)
        pool.kicked.set()
        if not deleted:
            return pool.inventory.observe(item, now=monotonic())
        known = pool.inventory.get(item["metadata"]["name"])
        if known is not None and known.uid in (None, item["metadata"]["uid"]):
            pool.inventory.forget(known.name)
            pool.room_was_made()
        self.discard(pool)
        return None

    def observe_node(self, item: Object, *, deleted: bool) -> None:
        """Takes in a node's object."""
        if (name := self.nodes.observe(item, deleted=deleted)) is not None:
            for pool in self:
                for part in pool.mixture:
                    part.node_changed(name)

    def replace(self, namespace: str, pools: list[Object], pods: list[Object], *, listed_at: float) -> int:
        """Takes in fresh lists of a namespace. Returns how many objects no watch had told of."""
        news = 0
        names = {object_key(body) for body in pools}
        for body in pools:
            known = self._pools.get(object_key(body))
            news += known is None or known.newest is None
            self.observe_pool(body, deleted=False)
        by_pool: dict[ObjectKey, list[Object]] = {}
        for item in pods:
            by_pool.setdefault((namespace, item["metadata"]["labels"].get(LABEL_POOL, "")), []).append(item)
        for pool in self:
            key = (pool.namespace, pool.name)
            if pool.namespace == namespace and pool.newest is not None and key not in names:
                pool.remove()
        for key in {*by_pool, *(key for key in self._pools if key[0] == namespace)}:
            pool = self.get(key)
            by_part: dict[Partition, list[Object]] = {}
            for item in by_pool.get(key, ()):
                by_part.setdefault(pool.mixture.part_of(item), []).append(item)
            for part in pool.mixture:
                news += len(part.inventory.replace(by_part.get(part, ()), listed_at=listed_at, now=monotonic()))
                part.kicked.set()
            self._keepers[pool].wall.wanted = True
            self.discard(pool)
        return news

    def open(self) -> None:
        """Lets the keepers work."""
        self.opened = True
        for pool in self:
            self._start(pool)

    def retire(self, pool: Partition, pod: Pod) -> None:
        """Ends a pod; of a pool that is forgotten, no pod is left."""
        part = pool.mixture.part_with(pod.name)
        if part is not None and (keeper := self._keepers.get(part)) is not None:
            keeper.retire(pod)

    def end_leftovers(self, held: set[ObjectKey], *, at_once: bool) -> None:
        """Ends pods that no execution has and that are not idle either, at once or when two sweeps found them so."""
        for keeper in list(self._keepers.values()):
            keeper.end_leftovers(held, at_once=at_once)

    async def close(self) -> None:
        """Ends the keepers; calls that they have under way go on."""
        self.opened = False
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        self._running.clear()

    def _start(self, pool: Partition) -> None:
        for part in pool.mixture:
            if part not in self._keepers:
                self._keepers[part] = self.make_keeper(part)
            if self.opened and part not in self._running:
                name = f"keeper {part.name} {part.variant}".rstrip()
                self._running[part] = self.tasks.spawn(self._keepers[part].run(), name=name)

    def _end(self, part: Partition) -> None:
        self._keepers.pop(part, None)
        if (task := self._running.pop(part, None)) is not None:
            task.cancel()
