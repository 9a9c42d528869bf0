"""Cleanup of namespaces that the release serves no longer: `python3 -m mcp_exec_operator.cleanup NAMESPACE...`

A hook of the chart runs it before an uninstallation, and before an upgrade that removes namespaces. It cancels the
executions, while the operator can still write how they ended, and deletes the pools and the skills that the release
brought. Kubernetes then deletes the pods, and after the last of them the NetworkPolicy. Nothing of this is needed for
the isolation of sandboxes.
"""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Final

from mcp_exec_api.code_execution import Phase, is_finished, read_created_at
from mcp_exec_api.constants import API_VERSION, EXECUTIONS, LABEL_SHIPPED, POOLS, SKILLS
from mcp_exec_api.meta import now
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.client import KubeClient, custom_resource_path, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.pages import TableRow
from mcp_exec_operator.executions.outcome import ExecutionOutcome
from mcp_exec_operator.executions.record import reduce_body
from mcp_exec_operator.executions.status import build_finished_status
from mcp_exec_operator.kube.api import POD_SELECTOR, ExecutionRow

log = logging.getLogger(__name__)

_CANCEL_SECONDS: Final = 20.0
"""How long the operator may take to end the cancelled executions."""
_GONE_SECONDS: Final = 60.0
"""How long the pods may take to be gone."""
_POLL_SECONDS: Final = 0.5
_CONCURRENCY: Final = 4
"""Namespaces at the same time: the Job has three minutes for all, and 256 MiB."""
_SKILLS_PER_PAGE: Final = 20
"""A skill can have 320 KiB."""
_GONE_CODES: Final = (403, 404)
"""Answers about a namespace that was deleted, and with it the rights in it."""


@dataclass(frozen=True, kw_only=True)
class NamespaceCleanup:
    """Cleanup of one namespace."""

    kube: KubeClient
    namespace: str
    cancel_seconds: float = _CANCEL_SECONDS
    gone_seconds: float = _GONE_SECONDS

    async def run(self) -> bool:
        """Clean the namespace up. Return whether nothing is left that runs; what is left ends without help.

        Raises ApiError if the API server does not answer.
        """
        try:
            await self._cancel_executions()
            await self._wait(self._all_finished, self.cancel_seconds)
            await self._delete_pools()
            await self._delete_shipped_skills()
            gone = await self._wait(self._no_pods, self.gone_seconds)
            await self._end_executions()
        except ApiError as error:
            if error.code not in _GONE_CODES:
                raise
            log.info("the namespace %s is gone, or its rights are: %s", self.namespace, error)
            return True
        return gone

    async def _cancel_executions(self) -> None:
        for name in await self._unfinished():
            await self._tolerate_absence(
                self.kube.patch(self._execution_path(name), {"spec": {"cancelRequested": True}})
            )

    async def _end_executions(self) -> None:
        """Write the end of executions that no operator has ended: there is none, or they were created since."""
        unfinished: list[Object] = []

        def take(body: Object) -> None:
            if not is_finished(body):
                unfinished.append(reduce_body(body))

        if await self._unfinished():
            await self.kube.scan(custom_resource_path(EXECUTIONS, namespace=self.namespace), take)
        for body in unfinished:
            message = "cancelled: the namespace is not served any more"
            outcome = ExecutionOutcome(phase=Phase.CANCELLED, reason=Reason.CANCELLED, message=message)
            meta, created = body["metadata"], datetime.fromisoformat(read_created_at(body))
            status = build_finished_status(body.get("status") or {}, outcome, moment=now(), created=created)
            identity = {name: meta[name] for name in ("namespace", "name", "resourceVersion")}
            finished = {"apiVersion": API_VERSION, "kind": "CodeExecution", "metadata": identity, "status": status}
            await self._tolerate_absence(self.kube.replace(self._execution_path(meta["name"]) + "/status", finished))

    async def _delete_pools(self) -> None:
        for pool in (await self.kube.list(custom_resource_path(POOLS, namespace=self.namespace)))[0]:
            meta = pool["metadata"]
            path = custom_resource_path(POOLS, namespace=self.namespace, name=meta["name"])
            await self.kube.delete(path, uid=meta["uid"])

    async def _delete_shipped_skills(self) -> None:
        """Delete them by their label. Nothing is deleted if an earlier release gave no right to do so."""
        found: list[tuple[str, str]] = []
        path = custom_resource_path(SKILLS, namespace=self.namespace)
        try:
            await self.kube.scan(
                path,
                lambda body: found.append((body["metadata"]["name"], body["metadata"]["uid"])),
                selector=f"{LABEL_SHIPPED}=true",
                chunk=_SKILLS_PER_PAGE,
            )
        except ApiError as error:
            if error.code not in _GONE_CODES:
                raise
        for name, uid in found:
            await self.kube.delete(custom_resource_path(SKILLS, namespace=self.namespace, name=name), uid=uid)

    async def _all_finished(self) -> bool:
        return not await self._unfinished()

    async def _no_pods(self) -> bool:
        path = resource_path("pods", namespace=self.namespace)
        return not (await self.kube.list(path, selector=POD_SELECTOR))[0]

    async def _unfinished(self) -> list[str]:
        """Return the names of the unfinished executions, from a table: the executions may have gigabytes."""
        names: list[str] = []

        def take(row: TableRow) -> None:
            found = ExecutionRow.from_table(row)
            if found.phase is None or not found.phase.finished:
                names.append(found.key[1])

        await self.kube.scan_table(custom_resource_path(EXECUTIONS, namespace=self.namespace), take)
        return names

    async def _wait(self, holds: Callable[[], Awaitable[bool]], seconds: float) -> bool:
        deadline = monotonic() + seconds
        while not await holds():
            if monotonic() >= deadline:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True

    async def _tolerate_absence(self, request: Awaitable[Object]) -> None:
        try:
            await request
        except ApiError as error:
            if error.code not in (404, 409):  # deleted, or changed by the operator
                raise

    def _execution_path(self, name: str) -> str:
        return custom_resource_path(EXECUTIONS, namespace=self.namespace, name=name)


async def clean_up(namespaces: list[str]) -> None:
    """Clean these namespaces up, with the rights of the pod's service account. One that fails stops no other."""
    slots = asyncio.Semaphore(_CONCURRENCY)

    async def clean(kube: KubeClient, namespace: str) -> None:
        async with slots:
            gone = await NamespaceCleanup(kube=kube, namespace=namespace).run()
        log.info("namespace %s: %s", namespace, "no sandbox is left" if gone else "the last sandboxes are ending")

    async with KubeClient.connect() as kube:
        ends = await asyncio.gather(*(clean(kube, each) for each in namespaces), return_exceptions=True)
    for namespace, end in zip(namespaces, ends, strict=True):
        if end is not None:
            log.error("namespace %s was not cleaned up: %s", namespace, end)
    if any(end is not None for end in ends):
        sys.exit(1)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    asyncio.run(clean_up(sys.argv[1:]))
