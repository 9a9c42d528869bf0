"""Leader election by a Lease: one operator works, the others stand by.

The holder renews the Lease. Who sees it unchanged for its whole duration, by the own clock, takes it; the times that
are written in it are for people. Every write names the version that it was made for, so one of two that take it wins.
"""

import asyncio
import logging
import socket
import uuid
from collections.abc import AsyncIterator
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

GROUP: Final = "coordination.k8s.io/v1"
_GONE_OR_CHANGED: Final = frozenset({404, 409})


class LeaseLost(Exception):
    """Another operator has the lease, or may soon have it: nothing may be begun any more."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Which Lease it is, who asks for it, and for how long."""

    namespace: str
    name: str
    identity: str
    """Who asks. A process that is started again in the same pod asks as the same, and so need not wait for itself."""
    duration_seconds: int
    """Seconds without a renewal after which others take the lease."""
    renew_seconds: float
    """Seconds without a renewal after which the holder ends; fewer than the duration, so that two never hold it."""
    retry_seconds: float
    """Seconds between two attempts to take or to renew it."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """As the settings say."""
        return cls(
            namespace=settings.release_namespace,
            name=settings.lease_name,
            identity=f"{settings.pod_name or socket.gethostname()}_{settings.pod_uid or uuid.uuid4()}",
            duration_seconds=settings.lease_duration_seconds,
            renew_seconds=settings.lease_renew_seconds,
            retry_seconds=settings.lease_retry_seconds,
        )

    def held(self, spec: Object, *, moment: datetime) -> Object:
        """A Lease's spec with this holder: renewed where it is the holder already, else taken over."""
        at = micro_time(moment)
        mine = {"holderIdentity": self.identity, "leaseDurationSeconds": self.duration_seconds, "renewTime": at}
        if spec.get("holderIdentity") == self.identity:
            return spec | mine
        transitions = spec.get("leaseTransitions")
        return spec | mine | {"acquireTime": at, "leaseTransitions": 0 if transitions is None else transitions + 1}


@dataclass(kw_only=True, eq=False)
class Leadership:
    """Takes the lease, keeps it and gives it up."""

    kube: KubeClient
    terms: Terms
    metrics: Metrics
    leads: bool = False
    """Whether this operator leads."""
    trouble: str = "the lease was not read yet"
    """Why it is not known who leads, or an empty text."""
    _lease: Object | None = None
    _fresh: bool = False
    """Whether the Lease is as this process wrote it, as far as it knows."""
    _changed_at: float = 0.0
    """When the Lease's spec was first seen as it is."""
    _renewed_at: float = 0.0
    """When the last renewal was sent: others see it no earlier."""
    _free: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the watch tells that nobody holds it."""

    @classmethod
    def create(cls, *, settings: Settings, kube: KubeClient, metrics: Metrics) -> Self:
        """One that has not asked for the lease yet."""
        terms = Terms.of(settings)
        # an attempt that hangs leaves time for another within the deadline; the retries are its own
        return cls(
            kube=replace(kube, timeout_seconds=terms.renew_seconds / 2, backoffs=()), terms=terms, metrics=metrics
        )

    @property
    def holder(self) -> str:
        """Who holds the lease, as far as is known; an empty text for nobody."""
        return str(self._spec().get("holderIdentity") or "")

    async def attempt(self) -> bool:
        """Takes or renews the lease, once. False where another has it, or the API server fails: `trouble` says how."""
        try:
            held = await self._take_or_renew()
        except ApiError as error:
            self._fresh = False
            self.trouble = f"the lease {self.terms.name} can't be used: {error}"
            log.warning("%s", self.trouble)
            return False
        self.trouble = ""
        if held and not self.leads:
            log.info("leads", extra={"lease": self.terms.name, "identity": self.terms.identity})
        self._set(leads=held)
        return held

    async def acquired(self) -> None:
        """Returns when this operator leads, however long that takes."""
        reflector = Reflector(
            kube=self.kube,
            path=self._path(),
            fields=f"metadata.name={self.terms.name}",
            on_change=self._on_change,
        )
        async with reflector.running():
            told = ""
            while not await self.attempt():
                if self.holder != told:
                    told = self.holder
                    log.info("stands by", extra={"lease": self.terms.name, "holder": told})
                # the Lease may run out before it is time for another look
                left = self._left()
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left or self.terms.retry_seconds, self.terms.retry_seconds)):
                        await self._free.wait()
                self._free.clear()

    async def renewed(self) -> None:
        """Renews the lease for as long as that goes well, and raises LeaseLost then."""
        while True:
            await asyncio.sleep(self.terms.retry_seconds)
            try:
                async with asyncio.timeout(self._renewed_at + self.terms.renew_seconds - monotonic()):
                    await self._renew()
            except TimeoutError:
                self._set(leads=False)
                raise LeaseLost(
                    f"the lease {self.terms.name} was not renewed for {self.terms.renew_seconds:g} s: {self.trouble}"
                ) from None

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[asyncio.Task[None]]:
        """Renews the lease while the context stands, then gives it up. Yields the task: only LeaseLost ends it."""
        renewing = asyncio.get_running_loop().create_task(self.renewed(), name="lease")
        try:
            yield renewing
        finally:
            lost = renewing.done()
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            if not lost:
                await self.release()

    async def release(self) -> None:
        """Gives the lease up where this operator has it, so that the next need not wait until it runs out."""
        self._set(leads=False)
        try:
            async with asyncio.timeout(self.kube.timeout_seconds):
                if not self._fresh:
                    self._note(await self._read())
                if self._lease is not None and self.holder == self.terms.identity:
                    await self._write({name: value for name, value in self._spec().items() if name != "holderIdentity"})
                    log.info("gave the lease up", extra={"lease": self.terms.name})
        except (ApiError, TimeoutError) as error:
            log.warning("the lease %s was not given up and will run out: %s", self.terms.name, error)

    async def _renew(self) -> None:
        while not await self.attempt():
            if not self.trouble and self.holder != self.terms.identity:
                self._set(leads=False)
                raise LeaseLost(f"{self.holder or 'somebody else'} has the lease {self.terms.name}")
            await asyncio.sleep(self.terms.retry_seconds)

    async def _take_or_renew(self) -> bool:
        """Raises ApiError."""
        if self._fresh:
            try:
                return await self._write_held()
            except ApiError as error:
                if error.code not in _GONE_OR_CHANGED:
                    raise
                self._fresh = False  # somebody has touched it: what it is now decides
        self._note(await self._read())
        return self._left() == 0 and await self._write_held()

    async def _write_held(self) -> bool:
        sent = monotonic()
        await self._write(self.terms.held(self._spec(), moment=now()))
        self._fresh, self._renewed_at = True, sent
        return True

    def _left(self) -> float:
        """Seconds for which another has the lease; 0 where nobody has it, or this operator."""
        if self.holder in ("", self.terms.identity):
            return 0.0
        # what its holder promised counts, not what this operator would
        duration = self._spec().get("leaseDurationSeconds") or self.terms.duration_seconds
        return max(self._changed_at + duration - monotonic(), 0.0)

    def _spec(self) -> Object:
        return dict((self._lease or {}).get("spec") or {})

    def _note(self, lease: Object | None) -> None:
        before = self._spec()
        self._lease = lease
        if self._spec() != before:
            self._changed_at = monotonic()

    def _on_change(self, lease: Object, deleted: bool) -> None:
        if deleted or not (lease.get("spec") or {}).get("holderIdentity"):
            self._free.set()

    def _set(self, *, leads: bool) -> None:
        self.leads = leads
        self.metrics.leader.set(leads)

    def _path(self, name: str | None = None) -> str:
        return resource_path("leases", namespace=self.terms.namespace, name=name, group=GROUP)

    async def _read(self) -> Object | None:
        try:
            return await self.kube.get(self._path(self.terms.name))
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def _write(self, spec: Object) -> None:
        """Makes the Lease, or changes it if it is still as it is known; else raises ApiError, 404 or 409."""
        if self._lease is None:
            metadata = {"name": self.terms.name, "namespace": self.terms.namespace}
            body = {"apiVersion": GROUP, "kind": "Lease", "metadata": metadata, "spec": spec}
            self._note(await self.kube.create(self._path(), body))
            return
        patch: list[dict[str, Any]] = [
            {"op": "replace", "path": "/metadata/resourceVersion", "value": self._lease["metadata"]["resourceVersion"]},
            {"op": "add", "path": "/spec", "value": spec},
        ]
        self._note(await self.kube.patch(self._path(self.terms.name), patch, content_type=JSON_PATCH))
