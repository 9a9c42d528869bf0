"""Leader election by a Lease: the leader works, all other operators stand by.

The leader renews the Lease. A standby takes it over once the spec has not changed for the Lease's whole duration,
measured by the standby's own monotonic clock; the times inside the Lease are for people only. Every write names the
resource version that it replaces, so at most one of several candidates succeeds.
"""

import asyncio
import logging
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from time import monotonic
from typing import Any, Final, Self

from mcp_exec_api.meta import micro_time, now
from mcp_exec_common.kube.client import JSON_PATCH, KubeClient, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.settings import Settings

log = logging.getLogger(__name__)

COORDINATION_GROUP: Final = "coordination.k8s.io/v1"
_DELETED_OR_CHANGED: Final = frozenset({404, 409})


class LeaseLost(Exception):
    """Another operator holds the Lease, or may hold it soon. This operator must not begin anything."""


@dataclass(frozen=True, kw_only=True)
class LeaseConfig:
    """Name, candidate and durations of the Lease."""

    namespace: str
    name: str
    identity: str
    """The candidate. A process restarted in the same pod has the same identity, so it need not wait for itself."""
    duration_seconds: int
    """Seconds without a renewal until other candidates take the Lease over."""
    renew_seconds: float
    """Seconds without a renewal until the leader stops. Less than the duration, so that two never lead."""
    retry_seconds: float
    """Seconds between two attempts to acquire or renew the Lease."""

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Build the configuration from the operator's settings."""
        return cls(
            namespace=settings.release_namespace,
            name=settings.lease_name,
            identity=f"{settings.pod_name or socket.gethostname()}_{settings.pod_uid or uuid.uuid4()}",
            duration_seconds=settings.lease_duration_seconds,
            renew_seconds=settings.lease_renew_seconds,
            retry_seconds=settings.lease_retry_seconds,
        )

    def build_spec(self, spec: Object, *, moment: datetime) -> Object:
        """Return a Lease's spec with this holder: renewed if it is the holder already, else taken over."""
        at = micro_time(moment)
        renewal = {"holderIdentity": self.identity, "leaseDurationSeconds": self.duration_seconds, "renewTime": at}
        if spec.get("holderIdentity") == self.identity:
            return spec | renewal
        transitions = spec.get("leaseTransitions")
        return spec | renewal | {"acquireTime": at, "leaseTransitions": 0 if transitions is None else transitions + 1}


@dataclass(kw_only=True, eq=False)
class LeaderElector:
    """Acquires, renews and releases the Lease."""

    kube: KubeClient
    config: LeaseConfig
    metrics: Metrics
    clock: Callable[[], float] = monotonic
    is_leader: bool = False
    """Whether this operator is the leader."""
    problem: str = "the lease was not read yet"
    """Why the leader is unknown; empty if it is known."""
    _lease: Object | None = None
    _is_own_write: bool = False
    """Whether the last known Lease is the result of this process's last write, and nothing has shown otherwise."""
    _changed_at: float = 0.0
    """When the Lease's spec was first seen as it is, by the monotonic clock."""
    _renewed_at: float = 0.0
    """When the last renewal was sent, by the monotonic clock; no other candidate sees it earlier."""
    _released: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the watch reports a Lease without holder."""

    @classmethod
    def create(
        cls, *, settings: Settings, kube: KubeClient, metrics: Metrics, clock: Callable[[], float] = monotonic
    ) -> Self:
        """Create an elector that has not asked for the Lease yet."""
        config = LeaseConfig.from_settings(settings)
        # A request that hangs must leave time for another one before the deadline. The elector retries.
        return cls(
            kube=replace(kube, timeout_seconds=config.renew_seconds / 2, retry_delays=()),
            config=config,
            metrics=metrics,
            clock=clock,
        )

    @property
    def holder(self) -> str:
        """Identity of the Lease's holder as last read; empty if there is none."""
        return str(self._spec().get("holderIdentity") or "")

    async def try_acquire_or_renew(self) -> bool:
        """Try once to acquire or renew the Lease; return whether this operator holds it.

        A False may be caused by the API server: `problem` then has the error.
        """
        try:
            holds = await self._acquire_or_renew()
        except ApiError as error:
            self._is_own_write = False
            self.problem = f"the lease {self.config.name} can't be used: {error}"
            log.warning("%s", self.problem)
            return False
        self.problem = ""
        if holds and not self.is_leader:
            log.info("became leader", extra={"lease": self.config.name, "identity": self.config.identity})
        self._set_leader(holds)
        return holds

    async def wait_until_leader(self) -> None:
        """Wait, for however long, until this operator is the leader."""
        reflector = Reflector(
            kube=self.kube,
            path=self._path(),
            fields=f"metadata.name={self.config.name}",
            on_change=self._on_change,
        )
        async with reflector.run_in_background():
            logged_holder = ""
            while not await self.try_acquire_or_renew():
                if self.holder != logged_holder:
                    logged_holder = self.holder
                    log.info("standing by", extra={"lease": self.config.name, "holder": logged_holder})
                # The Lease may expire before the next retry is due.
                left = self._seconds_left()
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left or self.config.retry_seconds, self.config.retry_seconds)):
                        await self._released.wait()
                self._released.clear()

    async def keep_renewing(self) -> None:
        """Renew the Lease forever. Raises LeaseLost once that fails for too long, or another operator holds it."""
        while True:
            await asyncio.sleep(self.config.retry_seconds)
            try:
                async with asyncio.timeout(self._renewed_at + self.config.renew_seconds - self.clock()):
                    await self._renew()
            except TimeoutError:
                self._set_leader(False)
                raise LeaseLost(
                    f"the lease {self.config.name} was not renewed for {self.config.renew_seconds:g} s: {self.problem}"
                ) from None

    @asynccontextmanager
    async def holding(self) -> AsyncIterator[asyncio.Task[None]]:
        """Renew the Lease while the context lasts, then release it. Yields the task; only LeaseLost ends it."""
        renewing = asyncio.get_running_loop().create_task(self.keep_renewing(), name="lease")
        try:
            yield renewing
        finally:
            lost = renewing.done()
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            if not lost:
                await self.release()

    async def release(self) -> None:
        """Release the Lease if this operator holds it, so that a standby need not wait until it expires."""
        self._set_leader(False)
        try:
            async with asyncio.timeout(self.kube.timeout_seconds):
                if not self._is_own_write:
                    self._observe(await self._read())
                if self._lease is not None and self.holder == self.config.identity:
                    await self._write({name: value for name, value in self._spec().items() if name != "holderIdentity"})
                    log.info("released the lease", extra={"lease": self.config.name})
        except (ApiError, TimeoutError) as error:
            log.warning("the lease %s was not released and will expire: %s", self.config.name, error)

    async def _renew(self) -> None:
        while not await self.try_acquire_or_renew():
            if not self.problem and self.holder != self.config.identity:
                self._set_leader(False)
                raise LeaseLost(f"{self.holder or 'another operator'} holds the lease {self.config.name}")
            await asyncio.sleep(self.config.retry_seconds)

    async def _acquire_or_renew(self) -> bool:
        """Return whether the Lease is held now. Raises ApiError."""
        if self._is_own_write:
            try:
                return await self._write_holder()
            except ApiError as error:
                if error.code not in _DELETED_OR_CHANGED:
                    raise
                self._is_own_write = False  # somebody else wrote or deleted it: read it
        self._observe(await self._read())
        return self._seconds_left() == 0 and await self._write_holder()

    async def _write_holder(self) -> bool:
        sent_at = self.clock()
        await self._write(self.config.build_spec(self._spec(), moment=now()))
        self._is_own_write, self._renewed_at = True, sent_at
        return True

    def _seconds_left(self) -> float:
        """Return how many seconds another operator holds the Lease; 0 if none does, or this one."""
        if self.holder in ("", self.config.identity):
            return 0.0
        # The duration that the holder wrote counts, not the own setting.
        duration = self._spec().get("leaseDurationSeconds") or self.config.duration_seconds
        return max(self._changed_at + duration - self.clock(), 0.0)

    def _spec(self) -> Object:
        return dict((self._lease or {}).get("spec") or {})

    def _observe(self, lease: Object | None) -> None:
        before = self._spec()
        self._lease = lease
        if self._spec() != before:
            self._changed_at = self.clock()

    def _on_change(self, lease: Object, deleted: bool) -> None:
        if deleted or not (lease.get("spec") or {}).get("holderIdentity"):
            self._released.set()

    def _set_leader(self, is_leader: bool) -> None:
        self.is_leader = is_leader
        self.metrics.leader.set(is_leader)

    def _path(self, name: str | None = None) -> str:
        return resource_path("leases", namespace=self.config.namespace, name=name, group=COORDINATION_GROUP)

    async def _read(self) -> Object | None:
        return await self.kube.find(self._path(self.config.name))

    async def _write(self, spec: Object) -> None:
        """Create the Lease, or change it. Raises ApiError 404 or 409 if it is not as last read."""
        if self._lease is None:
            metadata = {"name": self.config.name, "namespace": self.config.namespace}
            body = {"apiVersion": COORDINATION_GROUP, "kind": "Lease", "metadata": metadata, "spec": spec}
            self._observe(await self.kube.create(self._path(), body))
            return
        patch: list[dict[str, Any]] = [
            {"op": "replace", "path": "/metadata/resourceVersion", "value": self._lease["metadata"]["resourceVersion"]},
            {"op": "add", "path": "/spec", "value": spec},
        ]
        self._observe(await self.kube.patch(self._path(self.config.name), patch, content_type=JSON_PATCH))
