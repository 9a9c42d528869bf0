"""Requests of the operator to the API server, bounds and counts of writes, and executions as its lists show them."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, Literal, Self

from mcp_exec_api.code_execution import Phase
from mcp_exec_api.constants import (
    API_VERSION,
    EXECUTIONS,
    LABEL_MANAGED_BY,
    LABEL_NAME,
    MANAGED_BY,
    POOLS,
    ROLLOUTS,
    SANDBOX_NAME,
    SESSIONS,
    SKILLS,
)
from mcp_exec_common.kube.client import JSON_PATCH, KubeClient, custom_resource_path, resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.pages import TableRow
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_common.util.token_bucket import TokenBucket
from mcp_exec_operator.metrics import Metrics

POD_SELECTOR: Final = f"{LABEL_MANAGED_BY}={MANAGED_BY},{LABEL_NAME}={SANDBOX_NAME}"
"""Label selector of sandbox pods."""
NETWORKING_GROUP: Final = "networking.k8s.io/v1"
Kind = Literal["CodeExecution", "SandboxPool", "SandboxSession", "Skill", "ExecutionRollout"]
_RESOURCES: Final[dict[Kind, str]] = {
    "CodeExecution": EXECUTIONS,
    "SandboxPool": POOLS,
    "SandboxSession": SESSIONS,
    "Skill": SKILLS,
    "ExecutionRollout": ROLLOUTS,
}
_PAGE_SIZE: Final = 100
"""Objects per page of a list. Parsing a page blocks the event loop, and with it all executions."""


@dataclass(frozen=True, kw_only=True)
class ExecutionRow:
    """One execution in a list. It has neither code nor context nor output, which a namespace may have gigabytes of."""

    key: ObjectKey
    uid: str
    version: str
    """Resource version."""
    created: str
    """Creation time in whole seconds."""
    phase: Phase | None
    """None if a newer version of the operator wrote one that is unknown here."""
    finished_at: str | None
    ttl_seconds: float | None
    """Seconds from its end until it is due for deletion; None if the CRD in the cluster is an older one."""
    stored_bytes: int | None
    """Bytes of the object, at most; None if its status does not say them."""
    metadata: Object
    """Metadata of the object."""

    @classmethod
    def from_table(cls, row: TableRow) -> Self:
        """Return the row of the API server's table."""
        meta, cells = row.metadata, row.cells
        try:
            phase = Phase(cells.get("Phase") or Phase.PENDING)
        except ValueError:
            phase = None
        return cls(
            key=(meta["namespace"], meta["name"]),
            uid=meta["uid"],
            version=str(meta["resourceVersion"]),
            created=str(meta["creationTimestamp"]),
            phase=phase,
            finished_at=cells.get("Finished"),
            ttl_seconds=cells.get("TTL"),
            stored_bytes=cells.get("Bytes"),
            metadata=meta,
        )

    @property
    def is_expirable(self) -> bool:
        """Whether it has ended and the row shows when it is due for deletion."""
        return (
            self.phase is not None
            and self.phase.finished
            and self.finished_at is not None
            and self.ttl_seconds is not None
        )


@dataclass(frozen=True, kw_only=True)
class OperatorApi:
    """Access to mcp-exec's own kinds, to pods and to what belongs to them. `what` is a write's label in the metric.

    All methods raise ApiError, or its subclass ApiUnreachable if there is no answer.
    """

    kube: KubeClient
    metrics: Metrics

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return an object, or None if it does not exist."""
        return await self.kube.find(_path(kind, namespace, name))

    async def create(self, body: Object, *, what: str) -> Object:
        """Create an object and return it as stored. Raises ApiError 409 if one of this name exists."""
        self.metrics.writes.labels(what).inc()
        return await self.kube.create(_path(body["kind"], body["metadata"]["namespace"]), body)

    async def patch(self, kind: Kind, namespace: str, name: str, body: Object, *, what: str) -> Object:
        """Merge fields into an object and return it as stored."""
        self.metrics.writes.labels(what).inc()
        return await self.kube.patch(_path(kind, namespace, name), body)

    async def delete(self, kind: Kind, namespace: str, name: str, *, uid: str, what: str) -> None:
        """Delete an object if it still has this uid."""
        self.metrics.writes.labels(what).inc()
        await self.kube.delete(_path(kind, namespace, name), uid=uid)

    async def replace_status(
        self, kind: Kind, namespace: str, name: str, *, version: str, status: Object, what: str
    ) -> Object:
        """Replace an object's status and return the stored object.

        Raises ApiError 409 if the object's resource version is not `version`. The API server ignores all other fields
        that are sent to the status path. A patch would cost it twice the time, and a merge patch would drop every null
        inside a result.
        """
        self.metrics.writes.labels(what).inc()
        metadata = {"namespace": namespace, "name": name, "resourceVersion": version}
        body = {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "status": status}
        return await self.kube.replace(_path(kind, namespace, name) + "/status", body)

    async def scan_executions(self, namespace: str, take: Callable[[ExecutionRow], None]) -> None:
        """Pass the state of each execution of a namespace to `take`, without its code, context and output."""
        await self.kube.scan_table(_path("CodeExecution", namespace), lambda row: take(ExecutionRow.from_table(row)))

    async def list_pools(self, namespace: str) -> list[Object]:
        """Return all pools of a namespace."""
        return (await self.kube.list(_path("SandboxPool", namespace), chunk=_PAGE_SIZE))[0]

    async def list_pods(self, namespace: str) -> list[Object]:
        """Return all sandbox pods of a namespace."""
        path = resource_path("pods", namespace=namespace)
        return (await self.kube.list(path, selector=POD_SELECTOR, chunk=_PAGE_SIZE))[0]

    async def get_pod(self, namespace: str, name: str) -> Object | None:
        """Return a pod, or None if it does not exist."""
        return await self.kube.find(resource_path("pods", namespace=namespace, name=name))

    async def list_sessions(self, namespace: str) -> list[Object]:
        """Return all sessions of a namespace."""
        return (await self.kube.list(_path("SandboxSession", namespace), chunk=_PAGE_SIZE))[0]

    async def patch_pool_status(self, namespace: str, name: str, status: Object) -> Object:
        """Merge fields into a pool's status and return the stored pool."""
        self.metrics.writes.labels("pool-status").inc()
        return await self.kube.patch(_path("SandboxPool", namespace, name) + "/status", {"status": status})

    async def create_pod(self, manifest: Object) -> Object:
        """Create a pod and return it as stored."""
        self.metrics.writes.labels("pod-create").inc()
        return await self.kube.create(resource_path("pods", namespace=manifest["metadata"]["namespace"]), manifest)

    async def patch_pod(self, namespace: str, name: str, body: Object, *, what: str = "pod-label") -> Object:
        """Merge fields into a pod and return the stored pod. `what` is the metric's label."""
        self.metrics.writes.labels(what).inc()
        return await self.kube.patch(resource_path("pods", namespace=namespace, name=name), body)

    async def delete_pod(self, namespace: str, name: str, *, uid: str | None, grace_seconds: int = 1) -> None:
        """Delete a pod; if `uid` is given, only the pod that has it."""
        self.metrics.writes.labels("pod-delete").inc()
        path = resource_path("pods", namespace=namespace, name=name)
        await self.kube.delete(path, grace_seconds=grace_seconds, uid=uid)

    async def get_pod_warning(self, namespace: str, name: str) -> str:
        """Return reason and message of the newest warning Event about a pod; empty if there is none."""
        listing = await self.kube.get(
            resource_path("events", namespace=namespace),
            fieldSelector=f"involvedObject.kind=Pod,involvedObject.name={name},type=Warning",
            limit="20",
        )
        events = sorted(listing.get("items") or [], key=lambda event: str(event.get("lastTimestamp") or ""))
        return f"{events[-1].get('reason')}: {events[-1].get('message')}" if events else ""

    async def get_network_policy(self, namespace: str, name: str) -> Object | None:
        """Return a NetworkPolicy, or None if it does not exist."""
        path = resource_path("networkpolicies", namespace=namespace, name=name, group=NETWORKING_GROUP)
        return await self.kube.find(path)

    async def create_network_policy(self, policy: Object) -> Object:
        """Create a NetworkPolicy and return it as stored."""
        self.metrics.writes.labels("network-policy").inc()
        namespace = policy["metadata"]["namespace"]
        path = resource_path("networkpolicies", namespace=namespace, group=NETWORKING_GROUP)
        return await self.kube.create(path, policy)

    async def correct_network_policy(self, policy: Object) -> Object:
        """Replace spec and metadata of a NetworkPolicy, and return it: a merge would keep added rules."""
        self.metrics.writes.labels("network-policy").inc()
        meta = policy["metadata"]
        patch = [{"op": "replace", "path": "/spec", "value": policy["spec"]}]
        kept = [name for name in ("labels", "ownerReferences", "finalizers") if name in meta]
        patch += [{"op": "add", "path": f"/metadata/{name}", "value": meta[name]} for name in kept]
        return await self.kube.patch(
            resource_path("networkpolicies", namespace=meta["namespace"], name=meta["name"], group=NETWORKING_GROUP),
            patch,
            content_type=JSON_PATCH,
        )

    async def create_event(self, event: Object) -> None:
        """Create an Event."""
        self.metrics.writes.labels("event").inc()
        await self.kube.create(resource_path("events", namespace=event["metadata"]["namespace"]), event)


def _path(kind: Kind, namespace: str, name: str | None = None) -> str:
    return custom_resource_path(_RESOURCES[kind], namespace=namespace, name=name)


GONE_CODES: Final = (403, 404)
"""Answers about a namespace that was deleted, and with it the rights in it."""
_IDLE_WRITES: Final = 8
"""Status writes in flight that pod creation and deletion do not slow down."""
_MAX_DEFER_SECONDS: Final = 2.0
"""Longest deferral, counted from the moment the writes became many: an endless load needs new pods too."""
_PER_SECOND: Final = 0.5
_BURST: Final = 20
_MAX_NAMESPACES: Final = 1000
"""Namespaces whose rate is remembered; after more, all begin again."""


@dataclass(kw_only=True, eq=False)
class WritePriority:
    """Counter of the status writes in flight, over all pools."""

    clock: Callable[[], float] = monotonic
    _in_flight: int = 0
    _busy_since: float | None = None
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._idle.set()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Count one status write while the context lasts."""
        self._in_flight += 1
        if self._in_flight > _IDLE_WRITES and self._busy_since is None:
            self._busy_since = self.clock()
            self._idle.clear()
        try:
            yield
        finally:
            self._in_flight -= 1
            if self._in_flight <= _IDLE_WRITES:
                self._busy_since = None
                self._idle.set()

    def defer_seconds(self) -> float:
        """Return how many seconds pod creation and deletion should wait; 0 if they need not."""
        if self._busy_since is None:
            return 0.0
        return max(0.0, self._busy_since + _MAX_DEFER_SECONDS - self.clock())

    async def wait_until_idle(self) -> None:
        """Wait until few writes are in flight, or until the longest deferral is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.defer_seconds()):
                await self._idle.wait()


async def check_rights(kube: KubeClient, namespace: str) -> None:
    """Raise ApiError if pods or resources of a namespace can't be listed."""
    kinds = (custom_resource_path(kind, namespace=namespace) for kind in (EXECUTIONS, POOLS, SESSIONS))
    for path in (resource_path("pods", namespace=namespace), *kinds):
        await kube.get(path, limit="1")


@dataclass(kw_only=True)
class EventBudget:
    """Events that each namespace may still have: 20 at once, and one every two seconds."""

    clock: Callable[[], float] = monotonic
    _buckets: dict[str, TokenBucket] = field(default_factory=dict, init=False)

    def take(self, namespace: str) -> bool:
        """Return whether one more Event may be created in the namespace, and count it."""
        if namespace not in self._buckets and len(self._buckets) >= _MAX_NAMESPACES:
            self._buckets.clear()
        bucket = self._buckets.setdefault(namespace, TokenBucket(per_second=_PER_SECOND, burst=_BURST))
        now = self.clock()
        if not bucket.available(now):
            return False
        bucket.spend(1, now)
        return True
