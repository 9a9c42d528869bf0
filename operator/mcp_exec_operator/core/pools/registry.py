"""All pools of the served namespaces, each with its controller."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic

from mcp_exec_api.constants import Language
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey, object_key
from mcp_exec_common.util.signals import Signal
from mcp_exec_operator.cluster.kube.observations import DeletedUids
from mcp_exec_operator.core.pods.manifest import pool_of
from mcp_exec_operator.core.pods.network_policy import NAMESPACE_POLICY, NamespacePolicies, pool_of_policy
from mcp_exec_operator.core.pods.nodes import NodeCache
from mcp_exec_operator.core.pods.pod import IDLE, Pod, PodState
from mcp_exec_operator.core.pods.status import is_terminating
from mcp_exec_operator.core.pools.controller import PoolController
from mcp_exec_operator.core.pools.health import PoolHealth, SessionPodFinder
from mcp_exec_operator.core.pools.libraries import NamespaceLibraries
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.core.pools.reviews import PodTimes
from mcp_exec_operator.core.pools.services import PoolServices

log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class PoolRegistry:
    """Finds pools by key, feeds them with observed objects, starts and stops their controllers."""

    services: PoolServices
    sessions: SessionPodFinder | None = None
    """Finds the pods that are kept for sessions; None if there are none."""
    nodes: NodeCache = field(default_factory=NodeCache)
    """Nodes of the cluster, the same for all namespaces."""
    template_prefixes: tuple[str, ...] = ()
    """Prefixes that labels and annotations of templates may have."""
    times: PodTimes = field(default_factory=PodTimes)
    policies: defaultdict[str, NamespacePolicies] = field(default_factory=lambda: defaultdict(NamespacePolicies))
    """NetworkPolicies of others, by served namespace."""
    libraries: defaultdict[str, NamespaceLibraries] = field(default_factory=lambda: defaultdict(NamespaceLibraries))
    """Libraries of the pools, by served namespace."""
    removed: Signal[[Pool]] = field(default_factory=Signal)
    """Sent for each pool that was deleted."""
    closed: set[str] = field(default_factory=set)
    """Namespaces that are being deleted."""
    opened: bool = False
    """Whether controllers run. They start after the first resync, which shows what pods executions have."""
    _pools: dict[ObjectKey, Pool] = field(default_factory=dict)
    _controllers: dict[Pool, PoolController] = field(default_factory=dict)
    _running: dict[Pool, asyncio.Task[None]] = field(default_factory=dict)
    _deleted: DeletedUids = field(default_factory=DeletedUids)
    """Of pools and pods."""

    def get(self, key: ObjectKey) -> Pool:
        """Return the pool of that namespace and name. One that does not exist yet is empty."""
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = Pool(
                namespace=key[0],
                name=key[1],
                keys=self.services.authenticator.keys,
                nodes=self.nodes,
                policies=self.policies[key[0]],
                namespace_libraries=self.libraries[key[0]],
                sessions=self.sessions,
                template_prefixes=self.template_prefixes,
                times=self.times,
            )
            self._controllers[pool] = PoolController(pool=pool, services=self.services)
        return pool

    def __iter__(self) -> Iterator[Pool]:
        return iter(list(self._pools.values()))

    def warm_pods(self, namespace: str, language: Language) -> list[Pod]:
        """Return the warm pods of all pools of a namespace that run a language, and those kept for their owners."""
        return [
            pod
            for pool in self.list_pools(namespace)
            if pool.shape.language == language
            for pod in pool.pods.all(PodState.WARM, PodState.OWNED)
        ]

    def list_pools(self, namespace: str) -> list[Pool]:
        """Return the pools of a namespace, also those that executions name and that do not exist."""
        return [pool for pool in self if pool.namespace == namespace]

    def count_warm(self) -> dict[ObjectKey, int]:
        """Return the number of warm pods of each pool."""
        return {key: pool.counts.warm for key, pool in self._pools.items()}

    def list_health(self, namespace: str) -> dict[str, PoolHealth]:
        """Return how the pods of each pool of a namespace start and run, by name."""
        return {pool.name: pool.health for pool in self._pools.values() if pool.namespace == namespace}

    def require_warm(self, needs: Mapping[ObjectKey, int]) -> None:
        """Set the warm pods that rollouts need at least. A pool that is missing needs none."""
        for key, pool in self._pools.items():
            pool.require_warm(needs.get(key, 0))

    def discard(self, pool: Pool) -> None:
        """Drop a pool that does not exist, has no pods and no waiting executions."""
        if pool.shape.body is None and not pool.queue and not pool.counts.total:
            self._pools.pop((pool.namespace, pool.name), None)
            if self._controllers.pop(pool, None) is not None:
                self.services.metrics.drop(namespace=pool.namespace, pool=pool.name)
            if (task := self._running.pop(pool, None)) is not None:
                task.cancel()

    def observe_pool(self, body: Object, *, deleted: bool) -> None:
        """Process a pool's object of a watch or a list."""
        pool = self.get(object_key(body))
        if deleted:
            self._deleted.add(body["metadata"]["uid"])
            if pool.shape.uid == body["metadata"]["uid"] and pool.shape.body is not None:
                pool.remove()
                self.removed.emit(pool)
            self.discard(pool)
            return
        if pool.namespace not in self.closed:
            pool.configure(body)
            self._start(pool)

    def observe_pod(self, item: Object, *, deleted: bool) -> Pod | None:
        """Process a pod's object of a watch. A pod without all labels of a pool belongs to none."""
        name = pool_of(item)
        if deleted:
            self._deleted.add(item["metadata"]["uid"])
        if name is None:
            if not deleted:
                self._inspect_moved(item)
            return None
        pool = self.get((item["metadata"]["namespace"], name))
        if not deleted:
            if not self._accepts(pool, item):
                self.discard(pool)  # labels may name any number of pools
                return None
            pool.changed()
            pod = pool.pods.observe(item, now=monotonic())
            self._recognize(pool, pod, item)
            self._controllers[pool].inspector.inspect(pod, item)
            return pod
        known = pool.pods.get(item["metadata"]["name"])
        pool.isolation.remove_stranger(item["metadata"]["name"], item["metadata"]["uid"])
        if known is not None and known.seen.uid in (None, item["metadata"]["uid"]):
            pool.pods.forget(known.name)
            if not is_terminating(item):
                self._controllers[pool].inspector.check_gone(known)
            pool.refill_now()
        pool.changed()
        self.discard(pool)
        return None

    def observe_policy(self, policy: Object, *, deleted: bool) -> None:
        """Process a NetworkPolicy's object of a watch."""
        namespace, name = object_key(policy)
        owner = pool_of_policy(name)
        for pool in self:
            if pool.namespace == namespace and (name == NAMESPACE_POLICY or pool.name == owner):
                self._controllers[pool].network_policy.observe(policy, deleted=deleted)
        policies = self.policies[namespace]
        before = policies.version
        policies.observe(policy, deleted=deleted)
        if policies.version != before:
            for each in self:
                if each.namespace == namespace:
                    each.changed()

    def recheck_node(self, name: str) -> None:
        """Review the pods on a node that has changed."""
        for pool in self:
            pool.recheck_node(name)

    def replace(
        self, namespace: str, pools: list[Object], pods: list[Object], *, pools_listed_at: float, listed_at: float
    ) -> int:
        """Process full lists of a namespace, which were requested at these times by the monotonic clock.

        Return how many objects no watch had reported.
        """
        missed = 0
        pools = [body for body in pools if body["metadata"]["uid"] not in self._deleted]
        names = {object_key(body) for body in pools}
        for body in pools:
            known = self._pools.get(object_key(body))
            missed += known is None or known.shape.body is None
            self.observe_pool(body, deleted=False)
        by_pool: dict[ObjectKey, list[Object]] = {}
        for item in pods:
            if (name := pool_of(item)) is not None and item["metadata"]["uid"] not in self._deleted:
                by_pool.setdefault((namespace, name), []).append(item)
        for pool in self:
            listed = (namespace, pool.name) in names or pool.shape.appeared_at > pools_listed_at
            if pool.namespace == namespace and pool.shape.body is not None and not listed:
                pool.remove()
                self.removed.emit(pool)
        for key in {*by_pool, *(key for key in self._pools if key[0] == namespace)}:
            missed += self._replace_pods(self.get(key), by_pool.get(key, []), listed_at=listed_at)
        return missed

    def close_namespace(self, namespace: str) -> None:
        """Delete the idle pods of a namespace that is being deleted, and create none."""
        self.closed.add(namespace)
        for pool in self:
            if pool.namespace == namespace:
                for pod in pool.pods.all(*IDLE):
                    self.release(pool, pod)
                pool.remove()

    def open(self) -> None:
        """Start the controllers."""
        self.opened = True
        for pool in self:
            self._start(pool)

    def release(self, pool: Pool, pod: Pod, *, reuse_after: str = "") -> None:
        """Delete a pod, or clean it after the execution with the uid `reuse_after` for the next one of its owner.

        A pool that was dropped has no pods.
        """
        controller = self._controllers.get(pool)
        if controller is not None and reuse_after:
            controller.give_back(pod, uid=reuse_after)
        elif controller is not None:
            controller.remover.retire(pod)

    async def claim(self, pool: Pool, pod: Pod, *, owner: str) -> bool:
        """Record that a pod serves this owner only, before its first execution. Return False if that is uncertain."""
        controller = self._controllers.get(pool)
        return controller is not None and await controller.claim(pod, owner=owner)

    def has_withdrawn_key(self, namespace: str, pod: Pod) -> bool:
        """Return whether a pod has the token of a key that is not accepted any more."""
        digest = pod.seen.token_sha256
        return bool(digest) and not self.services.authenticator.accepts(namespace, pod.name, digest=digest)

    def delete_leftovers(self, held: set[ObjectKey], *, at_once: bool) -> None:
        """Delete pods that are in use but not held by an execution, at once or if two resyncs found them."""
        for controller in list(self._controllers.values()):
            controller.delete_leftovers(held, at_once=at_once)

    async def close(self) -> None:
        """Stop the controllers. Calls in flight continue."""
        self.opened = False
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        self._running.clear()

    def _accepts(self, pool: Pool, item: Object) -> bool:
        """Return whether an operator created a pod that has the labels of the pool. Report a pod of others once."""
        known = pool.pods.get(item["metadata"]["name"])
        if known is not None and known.seen.uid == item["metadata"]["uid"]:
            return True
        if known is None and self._inspect_moved(item):
            return False
        # nobody else knew the digest of a pod that is being created
        expected = known is not None and known.seen.uid is None and self.services.authenticator.has_token_digest(item)
        if expected or self.services.authenticator.claims_pool(item, pool.shape.uid):
            return True
        if pool.shape.body is not None and pool.note_stranger(item):
            fields = {"pool": pool.name, "pod": item["metadata"]["name"]}
            log.warning("a pod has the labels of the pool, but no operator created it: it is ignored", extra=fields)
        return False

    def _inspect_moved(self, item: Object) -> bool:
        """Delete a pod whose labels name another pool than the one that has it, or none. Return whether it is one."""
        namespace, name = object_key(item)
        for pool in self:
            pod = pool.pods.get(name) if pool.namespace == namespace else None
            if pod is not None and pod.seen.uid == item["metadata"]["uid"]:
                self._controllers[pool].inspector.inspect(pod, item)
                return True
        return False

    def _recognize(self, pool: Pool, pod: Pod, item: Object) -> None:
        """Trust a pod that an earlier operator has created, verified and sealed, and keep it for its owner."""
        if not pod.trust.verified and not pod.start.created_here and self.services.authenticator.is_sealed(item):
            pod.trust.verified = pod.trust.sealed = True
            pod.use.owner = self.services.authenticator.read_owner(item)
            pool.pods.set_aside(pod)

    def _replace_pods(self, pool: Pool, items: list[Object], *, listed_at: float) -> int:
        controller = self._controllers[pool]
        listed = {item["metadata"]["name"]: item["metadata"]["uid"] for item in items}
        pool.isolation.keep_strangers(listed)
        found = [item for item in items if self._accepts(pool, item)]
        before = pool.pods.all()
        missed = len(pool.pods.replace(found, listed_at=listed_at, now=monotonic()))
        for pod in before:
            if pod.gone:
                controller.inspector.check_gone(pod)
        for item in found:
            if (known := pool.pods.get(item["metadata"]["name"])) is not None:
                self._recognize(pool, known, item)
                controller.inspector.inspect(known, item)
        pool.changed()
        controller.network_policy.dirty = True
        self.discard(pool)
        return missed

    def _start(self, pool: Pool) -> None:
        if self.opened and pool not in self._running:
            self._running[pool] = self.services.tasks.spawn(self._controllers[pool].run(), name=f"pool {pool.name}")
