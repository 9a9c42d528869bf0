"""Namespaces that the release served and serves no longer: the leader ends what is left in them.

The chart's Roles in such a namespace are deleted with its removal. One RoleBinding stays, with what is needed here, and
the operator deletes it at the end.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Final

from mcp_exec_api.code_execution import Phase, is_finished, read_created_at
from mcp_exec_api.constants import (
    ANNOTATION_SERVED,
    API_VERSION,
    EXECUTIONS,
    LABEL_COMPONENT,
    LABEL_NAME,
    LABEL_SHIPPED,
    MANAGED_BY,
    POOLS,
    SKILLS,
)
from mcp_exec_api.meta import now
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_api.sandbox_pool import UNOBSERVED_STATUS
from mcp_exec_common.kube.client import JSON_PATCH, KubeClient, custom_resource_path, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.pages import TableRow
from mcp_exec_common.util.signals import Signal
from mcp_exec_operator.cluster.kube.api import GONE_CODES, NETWORKING_GROUP, POD_SELECTOR, ExecutionRow
from mcp_exec_operator.cluster.leader_election import COORDINATION_GROUP
from mcp_exec_operator.cluster.namespaces.claims import NamespaceClaims
from mcp_exec_operator.core.executions.facts import ExecutionSeen
from mcp_exec_operator.core.executions.outcome import ExecutionOutcome
from mcp_exec_operator.core.executions.status import build_finished_status
from mcp_exec_operator.core.pods.network_policy import NAMESPACE_POLICY
from mcp_exec_operator.settings import Settings

log = logging.getLogger(__name__)

_BINDINGS_GROUP: Final = "rbac.authorization.k8s.io/v1"
_OPERATOR_SELECTOR: Final = f"{LABEL_NAME}={MANAGED_BY},{LABEL_COMPONENT}=operator"
GONE_SECONDS: Final = 60.0
"""How long the pods may take to be gone."""
_POLL_SECONDS: Final = 0.5
_SKILLS_PER_PAGE: Final = 20
"""A skill can have 320 KiB."""


@dataclass(frozen=True, kw_only=True)
class NamespaceRemoval:
    """End of what a release made in one namespace, while none of its operators serves it."""

    kube: KubeClient
    namespace: str
    operator: str
    """Name of the operator's RoleBinding while the namespace was served. The name of the one that stays begins so."""
    claims: NamespaceClaims
    gone_seconds: float = GONE_SECONDS

    async def run(self) -> bool:
        """Delete sandboxes and shipped skills, and end executions. Return whether no sandbox is left.

        Pools stay, and say that nobody observes them. If another release serves the namespace, all is left to it.
        Raises ApiError if the API server does not answer.
        """
        try:
            others = await self._find_other_operators()
            if others:
                log.warning("the namespace %s is left to another release: %s", self.namespace, ", ".join(others))
            gone = bool(others) or await self._end()
            await self.claims.release_claim(self.namespace)
            await self.kube.delete(self._binding_path(f"{self.operator}-removal"))
        except ApiError as error:
            if error.code not in GONE_CODES:
                raise
            log.info("the namespace %s is gone, or its rights are: %s", self.namespace, error)
            return True
        return gone

    async def _end(self) -> bool:
        await self._delete_shipped_skills()
        for pod in await self._list_pods():
            path = resource_path("pods", namespace=self.namespace, name=pod["metadata"]["name"])
            await self.kube.delete(path, grace_seconds=1, uid=pod["metadata"]["uid"])
        gone = await wait_until(self._no_pods, seconds=self.gone_seconds)
        await self._end_executions()
        await self._disown_pools()
        # what is still ending has the base policy of its pool, which Kubernetes keeps as long
        policies = resource_path("networkpolicies", namespace=self.namespace, group=NETWORKING_GROUP)
        await self.kube.delete(f"{policies}/{NAMESPACE_POLICY}")
        return gone

    async def _find_other_operators(self) -> list[str]:
        """Return what shows that another release serves the namespace. Only without its label others can write that."""
        if await self.claims.read_label(self.namespace):
            return list(filter(None, [await self.claims.find_other(self.namespace)]))
        bindings, _ = await self.kube.list(self._binding_path(), selector=_OPERATOR_SELECTOR)
        names = [each["metadata"]["name"] for each in bindings if each["metadata"]["name"] != self.operator]
        return names or list(filter(None, [await self.claims.find_other(self.namespace)]))

    async def _end_executions(self) -> None:
        unfinished: list[Object] = []

        def take(body: Object) -> None:
            if not is_finished(body):
                unfinished.append(ExecutionSeen.from_object(body).body)

        if await list_unfinished(self.kube, self.namespace):
            await self.kube.scan(custom_resource_path(EXECUTIONS, namespace=self.namespace), take)
        for body in unfinished:
            message = "cancelled: the namespace is not served any more"
            outcome = ExecutionOutcome(phase=Phase.CANCELLED, reason=Reason.CANCELLED, message=message)
            meta, created = body["metadata"], datetime.fromisoformat(read_created_at(body))
            status = build_finished_status(body.get("status") or {}, outcome, moment=now(), created=created)
            identity = {name: meta[name] for name in ("namespace", "name", "resourceVersion")}
            finished = {"apiVersion": API_VERSION, "kind": "CodeExecution", "metadata": identity, "status": status}
            path = custom_resource_path(EXECUTIONS, namespace=self.namespace, name=meta["name"])
            await tolerate_absence(self.kube.replace(f"{path}/status", finished))

    async def _disown_pools(self) -> None:
        for pool in (await self.kube.list(custom_resource_path(POOLS, namespace=self.namespace)))[0]:
            path = custom_resource_path(POOLS, namespace=self.namespace, name=pool["metadata"]["name"])
            patch = [{"op": "add", "path": "/status", "value": UNOBSERVED_STATUS}]
            await tolerate_absence(self.kube.patch(f"{path}/status", patch, content_type=JSON_PATCH))

    async def _delete_shipped_skills(self) -> None:
        found: list[tuple[str, str]] = []
        await self.kube.scan(
            custom_resource_path(SKILLS, namespace=self.namespace),
            lambda body: found.append((body["metadata"]["name"], body["metadata"]["uid"])),
            selector=f"{LABEL_SHIPPED}=true",
            chunk=_SKILLS_PER_PAGE,
        )
        for name, uid in found:
            await self.kube.delete(custom_resource_path(SKILLS, namespace=self.namespace, name=name), uid=uid)

    async def _list_pods(self) -> list[Object]:
        return (await self.kube.list(resource_path("pods", namespace=self.namespace), selector=POD_SELECTOR))[0]

    async def _no_pods(self) -> bool:
        return not await self._list_pods()

    def _binding_path(self, name: str | None = None) -> str:
        return resource_path("rolebindings", namespace=self.namespace, name=name, group=_BINDINGS_GROUP)


@dataclass(frozen=True, kw_only=True)
class RemovedNamespaces:
    """Record of the served namespaces, an annotation of the operators' Lease, and the removal of those not served."""

    settings: Settings
    kube: KubeClient
    named: Callable[[], Iterable[str]]
    """Returns the namespaces that the release names now."""
    running: Callable[[], Iterable[str]] = tuple
    """Returns the namespaces that this process still serves: they are removed after that."""
    check_seconds: float = 20.0
    """Seconds until a removal that failed is tried again."""
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when other namespaces are named, or the service of one has ended."""
    removing: set[str] = field(default_factory=set)
    """Namespaces that are being removed. They must not be served meanwhile, even if they are named again."""
    ended: Signal[[]] = field(default_factory=Signal)
    """Sent when a removal has ended."""

    def changed(self) -> None:
        """Look soon for namespaces that are not served any more."""
        self.wakeup.set()

    async def run(self) -> None:
        """Record the served namespaces, and end what is left in those that are not served any more, for ever."""
        while True:
            self.wakeup.clear()
            done = await self.remove()
            with suppress(TimeoutError):
                async with asyncio.timeout(None if done else self.check_seconds):
                    await self.wakeup.wait()

    async def remove(self) -> bool:
        """Try once. Return whether all is done; an error is logged."""
        try:
            named, recorded = set(self.named()), await self._read()
            await self._write(recorded, recorded | named)
            results = [await self._remove(namespace) for namespace in sorted(recorded - named)]
            done = {namespace for namespace in results if namespace}
            await self._write(recorded | named, (recorded | named) - done)
        except ApiError as error:
            log.error("the served namespaces can't be recorded: %s", error)
            return False
        return all(results)

    async def _remove(self, namespace: str) -> str:
        """Return the name of the namespace, or an empty text if it could not be removed."""
        operator = self.settings.lease_name
        if namespace in self.running() or namespace in self.named():
            return ""
        self.removing.add(namespace)
        try:
            claims = NamespaceClaims.of(self.settings, kube=self.kube)
            removal = NamespaceRemoval(kube=self.kube, namespace=namespace, operator=operator, claims=claims)
            gone = await removal.run()
        except ApiError as error:
            log.error("namespace %s, which is not served any more, can't be cleaned up: %s", namespace, error)
            return ""
        finally:
            self.removing.discard(namespace)
            self.ended.emit()
        log.info("namespace %s: %s", namespace, "no sandbox is left" if gone else "the last sandboxes are ending")
        return namespace

    async def _read(self) -> set[str]:
        annotations = (await self.kube.get(self._path()))["metadata"].get("annotations") or {}
        return {name for name in annotations.get(ANNOTATION_SERVED, "").split(",") if name}

    async def _write(self, recorded: set[str], names: set[str]) -> None:
        if names != recorded:
            annotations = {ANNOTATION_SERVED: ",".join(sorted(names))}
            await self.kube.patch(self._path(), {"metadata": {"annotations": annotations}})

    def _path(self) -> str:
        namespace, name = self.settings.release_namespace, self.settings.lease_name
        return resource_path("leases", namespace=namespace, name=name, group=COORDINATION_GROUP)


async def list_unfinished(kube: KubeClient, namespace: str) -> list[str]:
    """Return the names of the unfinished executions, from a table: the executions may have gigabytes."""
    names: list[str] = []

    def take(row: TableRow) -> None:
        found = ExecutionRow.from_table(row)
        if found.phase is None or not found.phase.finished:
            names.append(found.key[1])

    await kube.scan_table(custom_resource_path(EXECUTIONS, namespace=namespace), take)
    return names


async def wait_until(holds: Callable[[], Awaitable[bool]], *, seconds: float) -> bool:
    """Return whether something holds after at most so many seconds."""
    deadline = monotonic() + seconds
    while not await holds():
        if monotonic() >= deadline:
            return False
        await asyncio.sleep(_POLL_SECONDS)
    return True


async def tolerate_absence(request: Awaitable[Object]) -> None:
    """Wait for a write to an object that others may delete or change."""
    try:
        await request
    except ApiError as error:
        if error.code not in (404, 409):
            raise
