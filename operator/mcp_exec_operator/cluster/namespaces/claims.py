"""Claims of namespaces: which release serves a namespace, and no other does.

The label `mcp-exec.dev/release` of the namespace decides, since only who may write namespaces can change it. Without
the label, a Lease in the namespace names the release. Each replica of the release renews it, since it is the release's
and not the leader's. With the label it only shows that operators run, to those who may read no more than the namespace.
Its times are wall-clock times: a process that begins has no others. The limits are minutes, so that clocks may differ
by some.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Self

from mcp_exec_api.constants import LABEL_RELEASE
from mcp_exec_api.meta import micro_time, now
from mcp_exec_api.reasons.event import EventReason
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.events import build_event
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.cluster.leader_election import COORDINATION_GROUP
from mcp_exec_operator.settings import Settings

log = logging.getLogger(__name__)

CLAIM: Final = "mcp-exec"
"""Name of the Lease."""
EXPIRES_SECONDS: Final = 300
"""Seconds without a renewal after which another release may take the namespace."""
_RENEW_SECONDS: Final = 60
_MAX_AHEAD_SECONDS: Final = 60
"""How far the clock of another release may be ahead. A later time is forged, and the Lease no claim."""
_MAX_HOLDER: Final = 320
"""Characters of a holder that are shown: a namespace and a name."""
_ATTEMPTS: Final = 3
"""Attempts to write a Lease that another replica writes at the same time."""


@dataclass(frozen=True, kw_only=True)
class NamespaceClaims:
    """The claims of one release."""

    kube: KubeClient
    release: str
    """The holder: namespace of the release and name of its operator."""
    label: str = ""
    """The release as the value of a namespace's label. If empty, every label names another release."""
    clock: Callable[[], datetime] = now

    @classmethod
    def of(cls, settings: Settings, *, kube: KubeClient) -> Self:
        """Return the claims of the operator with these settings."""
        release = f"{settings.release_namespace}/{settings.lease_name}"
        return cls(kube=kube, release=release, label=settings.release_label)

    async def claim(self, namespace: str) -> str:
        """Claim the namespace, or renew the claim. Return which other release has it, or an empty text.

        Raises ApiError.
        """
        if label := await self.read_label(namespace):
            if not (problem := self._compare(label)):
                try:
                    await self._renew(namespace, is_given=True)
                except ApiError as error:
                    log.warning("the Lease %s of namespace %s was not renewed: %s", CLAIM, namespace, error)
            return problem
        return await self._renew(namespace)

    async def _renew(self, namespace: str, *, is_given: bool = False) -> str:
        """Renew the Lease, whoever holds it if the namespace is given to this release. Return which other holds it."""
        for attempt in range(_ATTEMPTS):
            lease = await self.kube.find(self._path(namespace))
            age = self._measure_age(lease)
            if not is_given and (holder := self._find_holder(lease, age)):
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
        """Return which other release has the namespace, or an empty text. Raises ApiError."""
        if label := await self.read_label(namespace):
            return self._compare(label)
        lease = await self.kube.find(self._path(namespace))
        return self._find_holder(lease, self._measure_age(lease))

    async def read_label(self, namespace: str) -> str:
        """Return the release in the namespace's label, or an empty text. Raises ApiError."""
        found = await self.kube.find(resource_path("namespaces", name=namespace)) or {"metadata": {}}
        return str((found["metadata"].get("labels") or {}).get(LABEL_RELEASE) or "")

    async def release_claim(self, namespace: str) -> None:
        """Give up the namespace, for any other release. Raises ApiError."""
        lease = await self.kube.find(self._path(namespace))
        if lease is not None and _read_holder(lease) == self.release:
            await self.kube.delete(self._path(namespace), uid=lease["metadata"]["uid"])

    async def report(self, namespace: str, problem: str) -> None:
        """Create an Event that says why this release does not serve the namespace. An error is logged."""
        message = f"{self.release} does not serve this namespace: {problem}"
        event = build_event(
            "Namespace", key=(namespace, namespace), uid="", kind=EventReason.NAMESPACE_TAKEN.type,
            reason=EventReason.NAMESPACE_TAKEN, message=message,
            moment=self.clock(), api_version="v1",
        )  # fmt: skip
        try:
            await self.kube.create(resource_path("events", namespace=namespace), event)
        except ApiError as error:
            log.warning("no Event about namespace %s was created: %s", namespace, error)

    def _compare(self, label: str) -> str:
        if label == self.label:
            return ""
        return f"its label {LABEL_RELEASE} names the release {label}; change the label or the values of this release"

    async def _write(self, namespace: str, lease: Object | None) -> None:
        at = micro_time(self.clock())
        spec = {"holderIdentity": self.release, "leaseDurationSeconds": EXPIRES_SECONDS, "renewTime": at}
        if lease is None:
            metadata = {"name": CLAIM, "namespace": namespace}
            body = {"apiVersion": COORDINATION_GROUP, "kind": "Lease", "metadata": metadata, "spec": spec}
            await self.kube.create(self._path(namespace, name=None), body)
            return
        await self.kube.replace(self._path(namespace), {**lease, "spec": spec})

    def _find_holder(self, lease: Object | None, age: float) -> str:
        """Return which other release holds a Lease, unless that has expired."""
        holder = "" if lease is None else _read_holder(lease)
        if holder in ("", self.release) or age >= EXPIRES_SECONDS:
            return ""
        return f"the release {holder} serves it; remove it from the values of one of the two"

    def _measure_age(self, lease: Object | None) -> float:
        """Return the seconds since the last renewal. A time that cannot be read, or is far ahead, is expired."""
        try:
            renewed = datetime.fromisoformat(str(((lease or {}).get("spec") or {}).get("renewTime")))
        except ValueError:
            return EXPIRES_SECONDS
        age = (self.clock() - renewed.replace(tzinfo=renewed.tzinfo or UTC)).total_seconds()
        return age if age > -_MAX_AHEAD_SECONDS else EXPIRES_SECONDS

    def _path(self, namespace: str, *, name: str | None = CLAIM) -> str:
        return resource_path("leases", namespace=namespace, name=name, group=COORDINATION_GROUP)


def _read_holder(lease: Object) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")[:_MAX_HOLDER]
