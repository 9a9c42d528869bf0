"""Writes a pool's status and metrics: only after a change, at most once a second, off the path of executions."""

import logging
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from mcp_exec_api.meta import Condition, ConditionStatus
from mcp_exec_api.meta import now as utc_now
from mcp_exec_api.sandbox_pool import SandboxPoolStatus
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object, drop_empty_fields
from mcp_exec_operator.kube.api import OperatorApi
from mcp_exec_operator.kube.events import build_event
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.pods.cache import PodState
from mcp_exec_operator.pools.pool import Pool
from mcp_exec_operator.pools.status import build_status, find_condition

log = logging.getLogger(__name__)

_SETTLE_SECONDS: Final = 1.0
"""Delay between a change and its write, so that an execution that ends within it causes no write."""
_QUIET_REASONS: Final = frozenset({"Starting", "Refilling", "PoolAtCapacity", "NotVerified", "NetworkPolicyFailed"})
"""Reasons that are no one's fault, or that another condition reports, and that cause no Event."""


@dataclass(kw_only=True, eq=False)
class PoolStatusWriter:
    """The last written status of a pool, and when the next write is due."""

    pool: Pool
    api: OperatorApi
    metrics: Metrics
    _written: SandboxPoolStatus | None = None
    _due: float | None = None
    _reported: dict[str, object] = field(default_factory=dict)
    """By condition, what the last Event said."""

    async def write(self, now: float) -> float | None:
        """Write the status if it is due. Return the seconds until it will be, or None if nothing changed."""
        pool = self.pool
        if pool.body is None:
            self.metrics.drop_pool(pool.namespace, pool.name)
            return None
        self._update_metrics(now)
        status = build_status(pool, moment=utc_now(), now=now)
        if _comparable(status) == _comparable(self._written):
            self._due = None
            return None
        if self._due is None:
            self._due = now + (_SETTLE_SECONDS if self._written is not None else 0.0)
        if self._due > now:
            return self._due - now
        self._due = None
        try:
            body = await self.api.patch_pool_status(
                pool.namespace, pool.name, _merge_patch(status, written=self._written)
            )
        except ApiError as error:
            if error.code == 404:
                return None
            log.warning("the status of pool %s was not written: %s", pool.name, error, extra={"pool": pool.name})
            self._due = monotonic() + _SETTLE_SECONDS
            return _SETTLE_SECONDS
        if pool.body is None:
            return None  # deleted meanwhile
        pool.body = body
        self._written = status
        for kind in ("Ready", "Isolated", "PodsTrusted"):
            await self._report(kind, find_condition(status, kind))
        return None

    async def _report(self, kind: str, condition: Condition | None) -> None:
        """Create an Event if the condition is false for a new reason."""
        if condition is None or condition.status is ConditionStatus.TRUE:
            self._reported.pop(kind, None)
            return
        # the message of Ready changes all the time
        news = condition.reason if kind == "Ready" else condition.message
        if condition.reason not in _QUIET_REASONS and news != self._reported.get(kind):
            self._reported[kind] = news
            try:
                event = build_event(
                    "SandboxPool",
                    key=(self.pool.namespace, self.pool.name),
                    uid=self.pool.uid,
                    kind="Warning",
                    reason=condition.reason,
                    message=condition.message,
                    moment=utc_now(),
                )
                await self.api.create_event(event)
            except ApiError as error:
                log.warning("no Event for pool %s: %s", self.pool.name, error, extra={"pool": self.pool.name})

    def _update_metrics(self, now: float) -> None:
        pool, metrics = self.pool, self.metrics
        labels = (pool.namespace, pool.name)
        counts = pool.counts
        for state in PodState:
            metrics.pods.labels(*labels, state.value).set(getattr(counts, state.name.lower()))
        measurement = pool.autoscaler.demand.measure(now)
        metrics.queued.labels(*labels).set(len(pool.queue))
        metrics.pool_desired.labels(*labels).set(pool.desired)
        metrics.pool_arrivals.labels(*labels).set(measurement.rate)
        if measurement.startup_seconds is not None:
            metrics.pool_startup.labels(*labels).set(measurement.startup_seconds)
        if measurement.hit_rate is not None:
            metrics.pool_hits.labels(*labels).set(measurement.hit_rate)
        if measurement.reuse_rate is not None:
            metrics.pool_reuse.labels(*labels).set(measurement.reuse_rate)


def _comparable(status: SandboxPoolStatus | None) -> object:
    """Return a status without the times of its conditions."""
    if status is None:
        return None
    # libraries are compared as they are, which costs nothing while they are the same objects
    fields = status.model_copy(update={"libraries": []}).to_api()
    conditions = [{**each, "lastTransitionTime": None} for each in fields.get("conditions", [])]
    return fields | {"conditions": conditions}, status.libraries


def _merge_patch(status: SandboxPoolStatus, *, written: SandboxPoolStatus | None) -> Object:
    """Return the status without the libraries if these are written: most changes are of other fields."""
    # fields that are not set are null, which removes them
    same = written is not None and written.libraries == status.libraries
    fields = status.model_dump(by_alias=True, mode="json", exclude={"libraries"} if same else None)
    return fields | {"conditions": [drop_empty_fields(each) for each in fields["conditions"]]}
