"""Writes a pool's status: only where it changed, at most once a second, off the path of executions."""

import logging
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from mcp_exec_api.meta import Condition, ConditionStatus, now
from mcp_exec_api.sandbox_pool import SandboxPoolStatus
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.executions.status import lean
from mcp_exec_operator.kube.api import OperatorApi
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.pools.partition import Partition
from mcp_exec_operator.pools.status import build_event, build_status, condition_of

log = logging.getLogger(__name__)

_SETTLE_SECONDS: Final = 1.0
"""How long a change waits for the next, so that an execution that is over by then costs no write."""
_QUIET_REASONS: Final = frozenset({"Starting", "Refilling", "PoolAtCapacity"})
"""Reasons for not being ready that are no one's fault: they make no Event."""


@dataclass(kw_only=True, eq=False)
class PoolStatusWriter:
    """The status that was last written, and when a newer one is due."""

    pool: Partition
    api: OperatorApi
    metrics: Metrics
    _written: SandboxPoolStatus | None = None
    _due: float | None = None
    _told: dict[str, object] = field(default_factory=dict)

    async def write(self, at: float) -> float | None:
        """Writes the status if it is due. Returns the seconds until it will be, or None where nothing changed."""
        pool = self.pool
        if pool.newest is None:
            return None
        self._gauge(at)
        status = build_status(pool, moment=now(), now=at)
        if self._said(status) == self._said(self._written):
            self._due = None
            return None
        if self._due is None:
            self._due = at + (_SETTLE_SECONDS if self._written is not None else 0.0)
        if self._due > at:
            return self._due - at
        self._due = None
        try:
            pool.newest = await self.api.patch_pool_status(pool.namespace, pool.name, _lean(status))
        except ApiError as error:
            if error.code == 404:
                return None
            log.warning("the status of pool %s was not written: %s", pool.name, error, extra={"pool": pool.name})
            self._due = monotonic() + _SETTLE_SECONDS
            return _SETTLE_SECONDS
        self._written = status
        for kind in ("Ready", "VariantsHealthy"):
            await self._tell(kind, condition_of(status, kind))
        return None

    async def _tell(self, kind: str, condition: Condition | None) -> None:
        if condition is None or condition.status is ConditionStatus.TRUE:
            self._told.pop(kind, None)
            return
        # the messages of the other condition change all the time
        news = condition.message if kind == "VariantsHealthy" else condition.reason
        if condition.reason not in _QUIET_REASONS and news != self._told.get(kind):
            self._told[kind] = news
            try:
                await self.api.create_event(build_event(self.pool, condition, moment=now()))
            except ApiError as error:
                log.warning("no Event for pool %s: %s", self.pool.name, error, extra={"pool": self.pool.name})

    def _gauge(self, at: float) -> None:
        mixture = self.pool.mixture
        self.metrics.queued.labels(self.pool.name).set(mixture.queued)
        counts = mixture.counts
        for name in mixture.weights:
            self.metrics.variants.labels(self.pool.name, name).set(name in mixture.rotation)
        for state in ("creating", "starting", "warm", "unfit", "busy", "terminating"):
            self.metrics.pods.labels(self.pool.name, state).set(getattr(counts, state))
        measured = self.pool.scaler.demand.measured(at)
        self.metrics.pool_desired.labels(self.pool.name).set(self.pool.total_desired)
        self.metrics.pool_arrivals.labels(self.pool.name).set(measured.rate)
        if measured.startup_seconds is not None:
            self.metrics.pool_startup.labels(self.pool.name).set(measured.startup_seconds)
        if measured.hit_rate is not None:
            self.metrics.pool_hits.labels(self.pool.name).set(measured.hit_rate)

    @staticmethod
    def _said(status: SandboxPoolStatus | None) -> object:
        """What a status says, without the times of its conditions."""
        if status is None:
            return None
        said = status.to_api()
        return said | {
            "conditions": [{**each, "lastTransitionTime": None} for each in said.get("conditions", [])],
        }


def _lean(status: SandboxPoolStatus) -> Object:
    # what is not set is null, by which a merge takes it away
    said = status.model_dump(by_alias=True, mode="json")
    return said | {name: [lean(each) for each in said[name]] for name in ("conditions", "variants")}
