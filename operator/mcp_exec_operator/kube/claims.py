"""Claims of namespaces: a Lease in each served namespace names the release that serves it, and no other does.

Each replica of the release renews it, since it is the release's and not the leader's. Its times are wall-clock times: a
process that begins has no others. The limits are minutes, so that clocks may differ by some.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar, Final, Self

from mcp_exec_api.meta import micro_time, now
from mcp_exec_api.reasons.event import EventReason
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.kube.api import GONE_CODES, build_event, find_refusal
from mcp_exec_operator.kube.leader_election import COORDINATION_GROUP
from mcp_exec_operator.settings import Settings

log = logging.getLogger(__name__)

CLAIM: Final = "mcp-exec"
"""Name of the Lease."""
EXPIRES_SECONDS: Final = 300
"""Seconds without a renewal after which another release may take the namespace."""
_RENEW_SECONDS: Final = 60
_MAX_HOLDER: Final = 320
"""Characters of a holder that are shown: a namespace and a name."""
_ATTEMPTS: Final = 3
"""Attempts to write a Lease that another replica writes at the same time."""


@dataclass(frozen=True, kw_only=True)
class NamespaceClaims:
    """The claims of one release."""

    CHECK_SECONDS: ClassVar[float] = 20.0
    """Interval of renewals, and of attempts to claim what was refused."""

    kube: KubeClient
    release: str
    """The holder: namespace of the release and name of its operator."""
    clock: Callable[[], datetime] = now

    @classmethod
    def of(cls, settings: Settings, *, kube: KubeClient) -> Self:
        """Return the claims of the operator with these settings."""
        return cls(kube=kube, release=f"{settings.release_namespace}/{settings.lease_name}")

    async def claim_all(self, namespaces: Iterable[str]) -> dict[str, str]:
        """Claim namespaces. Return why others of them may not be served. Raises ApiError."""
        refusals: dict[str, str] = {}
        for namespace in namespaces:
            if problem := await self._try_to_claim(namespace):
                log.error("namespace %s is not served, nothing runs in it: %s", namespace, problem)
                refusals[namespace] = problem
        return refusals

    async def wait_for_change(self, *, served: Iterable[str], refused: Iterable[str]) -> None:
        """Renew the claims, until one of them is lost or a refused namespace can be served."""
        while True:
            await asyncio.sleep(self.CHECK_SECONDS)
            for namespace in served:
                try:
                    holder = await self.claim(namespace)
                except ApiError as error:
                    log.warning("the claim of namespace %s was not renewed: %s", namespace, error)
                    continue
                if holder:
                    log.error("namespace %s is lost: the release %s serves it", namespace, holder)
                    return
            for namespace in refused:
                if await self._can_be_served(namespace):
                    log.info("namespace %s can be served now", namespace)
                    return

    async def claim(self, namespace: str) -> str:
        """Claim the namespace, or renew the claim. Return the release that serves it instead. Raises ApiError."""
        for attempt in range(_ATTEMPTS):
            lease = await self.kube.find(self._path(namespace))
            age = self._measure_age(lease)
            if holder := self._find_other(lease, age):
                return holder
            if lease is not None and _read_holder(lease) == self.release and age < _RENEW_SECONDS:
                return ""
            try:
                await self._write(namespace, lease)
            except ApiError as error:
                if error.code != 409 or attempt == _ATTEMPTS - 1:
                    raise
            else:
                return ""
        raise AssertionError("unreachable")

    async def find_other(self, namespace: str) -> str:
        """Return the other release that serves the namespace, or an empty text. Raises ApiError."""
        lease = await self.kube.find(self._path(namespace))
        return self._find_other(lease, self._measure_age(lease))

    async def release_claim(self, namespace: str) -> None:
        """Give up the namespace, for any other release. Raises ApiError."""
        lease = await self.kube.find(self._path(namespace))
        if lease is not None and _read_holder(lease) == self.release:
            await self.kube.delete(self._path(namespace), uid=lease["metadata"]["uid"])

    async def _try_to_claim(self, namespace: str) -> str:
        """Claim the namespace. Return what is against it; Kubernetes shows it as an Event of the Lease."""
        try:
            holder = await self.claim(namespace)
        except ApiError as error:
            if error.code not in (*GONE_CODES, 409):
                raise
            return f"its Lease {CLAIM} can't be written: {error}"
        if not holder:
            return ""
        problem = f"the release {holder} serves it; remove it from the values of one of the two"
        await self._report(namespace, f"{self.release} does not serve this namespace: {problem}")
        return problem

    async def _can_be_served(self, namespace: str) -> bool:
        try:
            return await find_refusal(self.kube, namespace) is None and not await self.claim(namespace)
        except ApiError as error:
            log.info("namespace %s can't be claimed: %s", namespace, error)
            return False

    async def _report(self, namespace: str, message: str) -> None:
        event = build_event(
            "Lease", key=(namespace, CLAIM), uid="", kind=EventReason.NAMESPACE_TAKEN.type,
            reason=EventReason.NAMESPACE_TAKEN, message=message,
            moment=self.clock(),
        )  # fmt: skip
        event["involvedObject"] |= {"apiVersion": COORDINATION_GROUP}
        try:
            await self.kube.create(resource_path("events", namespace=namespace), event)
        except ApiError as error:
            log.warning("no Event about namespace %s was created: %s", namespace, error)

    async def _write(self, namespace: str, lease: Object | None) -> None:
        at = micro_time(self.clock())
        spec = {"holderIdentity": self.release, "leaseDurationSeconds": EXPIRES_SECONDS, "renewTime": at}
        if lease is None:
            metadata = {"name": CLAIM, "namespace": namespace}
            body = {"apiVersion": COORDINATION_GROUP, "kind": "Lease", "metadata": metadata, "spec": spec}
            await self.kube.create(self._path(namespace, name=None), body)
            return
        await self.kube.replace(self._path(namespace), {**lease, "spec": spec})

    def _find_other(self, lease: Object | None, age: float) -> str:
        """Return the other release that holds a Lease, unless that has expired."""
        holder = "" if lease is None else _read_holder(lease)
        return holder if holder not in ("", self.release) and age < EXPIRES_SECONDS else ""

    def _measure_age(self, lease: Object | None) -> float:
        """Return the seconds since the last renewal. What cannot be read is expired; a later time is now."""
        try:
            renewed = datetime.fromisoformat(str(((lease or {}).get("spec") or {}).get("renewTime")))
        except ValueError:
            return EXPIRES_SECONDS
        return max(0.0, (self.clock() - renewed.replace(tzinfo=renewed.tzinfo or UTC)).total_seconds())

    def _path(self, namespace: str, *, name: str | None = CLAIM) -> str:
        return resource_path("leases", namespace=namespace, name=name, group=COORDINATION_GROUP)


def _read_holder(lease: Object) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")[:_MAX_HOLDER]
