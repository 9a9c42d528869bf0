"""Cache of the served namespaces' pools: the limits that a new execution must fit."""

import math
from dataclasses import dataclass, field
from typing import Final, Self

from pydantic import ValidationError

from mcp_exec_api.code_findings import CodeCheck
from mcp_exec_api.constants import DEFAULT_MAX_QUEUED, MAX_TIMEOUT_SECONDS, POOLS
from mcp_exec_api.sandbox_pool import PoolTools
from mcp_exec_api.wire.stats import PoolCapacity
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey, Reflector, object_key
from mcp_exec_gateway.http.problems import too_many
from mcp_exec_gateway.pools.capacity import read_capacity

_DEFAULT_RETRY_SECONDS: Final = 5
"""Retry-After if the pool's status has no expected wait."""
_MAX_RETRY_SECONDS: Final = 60
_RETRY_SHARE: Final = 0.1
"""Share of the expected wait after which a retry makes sense: a tenth of the queue is served by then."""


@dataclass(frozen=True, kw_only=True)
class CachedPool:
    """Limits and queue of one pool."""

    name: str
    max_timeout_seconds: int
    max_queued: int
    queued: int
    """Executions that wait for a pod, from the pool's status, which is up to about a second old."""
    expected_wait_seconds: float | None
    """Expected wait of the last execution in the queue."""
    code_check: CodeCheck
    capacity: PoolCapacity
    """What the pool offers, for clients."""
    tools: PoolTools
    """Tools that executions of the pool, and direct calls, may use."""

    @classmethod
    def from_object(cls, pool: Object) -> Self:
        """Read the pool's spec and status."""
        spec, status = pool.get("spec") or {}, pool.get("status") or {}
        wait = status.get("expectedWaitSeconds")
        return cls(
            name=pool["metadata"]["name"],
            max_timeout_seconds=int(spec.get("maxTimeoutSeconds", MAX_TIMEOUT_SECONDS)),
            max_queued=int(spec.get("maxQueued", DEFAULT_MAX_QUEUED)),
            queued=int(status.get("queued", 0)),
            expected_wait_seconds=None if wait is None else float(wait),
            code_check=_parse_code_check(spec),
            capacity=read_capacity(pool),
            tools=_parse_tools(spec),
        )

    @property
    def retry_after(self) -> int:
        """Seconds after which a full queue has room for the callers that it rejected."""
        if self.expected_wait_seconds is None:
            return _DEFAULT_RETRY_SECONDS
        return min(max(math.ceil(self.expected_wait_seconds * _RETRY_SHARE), 1), _MAX_RETRY_SECONDS)

    def check_queue(self) -> None:
        """Raise HttpProblem if the queue is full, so that one more execution would fail."""
        if self.queued < self.max_queued:
            return
        wait = self.expected_wait_seconds
        detail = f"{self.queued} executions wait for a pod of pool {self.name}, and its maxQueued is {self.max_queued}"
        expected = "" if wait is None else f"; the expected wait is {max(wait, 1):.0f} s"
        raise too_many(detail + expected, kind="queue-full", retry_after=self.retry_after)


@dataclass(kw_only=True)
class PoolCache:
    """Pools by namespace and name. The reflectors call `on_change`."""

    _pools: dict[ObjectKey, CachedPool] = field(default_factory=dict, init=False)

    def build_reflector(self, *, kube: KubeClient, namespace: str) -> Reflector:
        """Build the reflector of one namespace's pools."""
        path = custom_resource_path(POOLS, namespace=namespace)
        return Reflector(kube=kube, path=path, on_change=self.on_change, transform=_strip_pool)

    def on_change(self, pool: Object, deleted: bool) -> None:
        """Observe one change."""
        if deleted:
            self._pools.pop(object_key(pool), None)
        else:
            self._pools[object_key(pool)] = CachedPool.from_object(pool)

    def find(self, namespace: str, name: str) -> CachedPool | None:
        """Return the pool, or None if it does not exist."""
        return self._pools.get((namespace, name))

    def list_capacities(self, namespace: str) -> list[PoolCapacity]:
        """Return what the pools of a namespace offer, in alphabetical order."""
        return [self._pools[namespace, name].capacity for name in self.list_names(namespace)]

    def list_names(self, namespace: str) -> list[str]:
        """Return the names of a namespace's pools in alphabetical order."""
        return sorted(name for space, name in self._pools if space == namespace)


def _parse_code_check(spec: Object) -> CodeCheck:
    try:
        return CodeCheck.model_validate(spec.get("codeCheck") or {})
    except ValidationError:
        return CodeCheck()  # the operator runs nothing in a pool with an invalid spec


def _parse_tools(spec: Object) -> PoolTools:
    try:
        return PoolTools.model_validate(spec.get("tools") or {})
    except ValidationError:
        return PoolTools(allow=[])


def _strip_pool(pool: Object) -> Object:
    metadata = pool["metadata"]
    return {"metadata": {"namespace": metadata.get("namespace", ""), "name": metadata["name"]}}
