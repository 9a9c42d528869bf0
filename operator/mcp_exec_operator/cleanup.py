"""Cleanup before an uninstallation: `python3 -m mcp_exec_operator.cleanup ...`

A hook of the chart runs it. It cancels the executions of all served namespaces, while the operator can still write how
they ended. Then it stops the operator, which would replace the sandboxes, and deletes them. Pools stay: those of the
release are deleted with it, others are their owners'. Nothing of this is needed for the isolation of sandboxes.
"""

import argparse
import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from mcp_exec_api.constants import EXECUTIONS
from mcp_exec_common.kube.client import KubeClient, custom_resource_path, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_operator.cluster.kube.api import GONE_CODES
from mcp_exec_operator.cluster.leader_election import COORDINATION_GROUP
from mcp_exec_operator.cluster.namespaces.claims import NamespaceClaims
from mcp_exec_operator.core.removal import (
    GONE_SECONDS,
    NamespaceRemoval,
    list_unfinished,
    tolerate_absence,
    wait_until,
)

log = logging.getLogger(__name__)

_CANCEL_SECONDS: Final = 20.0
"""How long the operator may take to end the cancelled executions."""
_STOP_SECONDS: Final = 45.0
"""How long the operator may take to stop: its grace period, and a few seconds."""
_CONCURRENCY: Final = 4
"""Namespaces at the same time: the Job has three minutes for all, and 256 MiB."""


@dataclass(frozen=True, kw_only=True)
class ReleaseCleanup:
    """Cleanup of all namespaces that a release serves."""

    kube: KubeClient
    release_namespace: str
    operator: str
    """Name of the operator's Deployment, Lease and RoleBindings."""
    label: str
    """The release as the value of a namespace's label."""
    namespaces: list[str]
    cancel_seconds: float = _CANCEL_SECONDS
    stop_seconds: float = _STOP_SECONDS
    gone_seconds: float = GONE_SECONDS

    async def run(self) -> bool:
        """Clean up. Return whether no namespace failed; one that fails stops no other."""
        cancelled = await self._for_each(self._cancel)
        await self._stop_operator()
        return await self._for_each(self._end) and cancelled

    @property
    def _claims(self) -> NamespaceClaims:
        return NamespaceClaims(kube=self.kube, release=f"{self.release_namespace}/{self.operator}", label=self.label)

    async def _for_each(self, work: Callable[[str], Awaitable[None]]) -> bool:
        slots = asyncio.Semaphore(_CONCURRENCY)

        async def run(namespace: str) -> None:
            async with slots:
                await work(namespace)

        ends = await asyncio.gather(*(run(each) for each in self.namespaces), return_exceptions=True)
        for namespace, end in zip(self.namespaces, ends, strict=True):
            if end is not None:
                log.error("namespace %s was not cleaned up: %s", namespace, end)
        return not any(ends)

    async def _cancel(self, namespace: str) -> None:
        async def all_finished() -> bool:
            return not await list_unfinished(self.kube, namespace)

        try:
            if await self._claims.find_other(namespace):
                return
            for name in await list_unfinished(self.kube, namespace):
                path = custom_resource_path(EXECUTIONS, namespace=namespace, name=name)
                await tolerate_absence(self.kube.patch(path, {"spec": {"cancelRequested": True}}))
            await wait_until(all_finished, seconds=self.cancel_seconds)
        except ApiError as error:
            if error.code not in GONE_CODES:
                raise

    async def _stop_operator(self) -> None:
        """Scale the operator to zero and wait until it has released its Lease, after its last write."""
        deployment = resource_path("deployments", namespace=self.release_namespace, name=self.operator, group="apps/v1")
        lease = resource_path("leases", namespace=self.release_namespace, name=self.operator, group=COORDINATION_GROUP)

        async def is_released() -> bool:
            found = await self.kube.find(lease)
            return found is None or not (found.get("spec") or {}).get("holderIdentity")

        try:
            await self.kube.patch(f"{deployment}/scale", {"spec": {"replicas": 0}})
            if not await wait_until(is_released, seconds=self.stop_seconds):
                log.warning("the operator has not released its Lease in %g s", self.stop_seconds)
        except ApiError as error:
            log.error("the operator can't be stopped, and may replace sandboxes until it is deleted: %s", error)

    async def _end(self, namespace: str) -> None:
        removal = NamespaceRemoval(
            kube=self.kube,
            namespace=namespace,
            operator=self.operator,
            claims=self._claims,
            gone_seconds=self.gone_seconds,
        )
        gone = await removal.run()
        log.info("namespace %s: %s", namespace, "no sandbox is left" if gone else "the last sandboxes are ending")


async def clean_up(arguments: argparse.Namespace) -> None:
    """Clean up with the rights of the pod's service account."""
    async with KubeClient.connect() as kube:
        cleanup = ReleaseCleanup(
            kube=kube,
            release_namespace=arguments.release_namespace,
            operator=arguments.operator,
            label=arguments.label,
            namespaces=arguments.namespaces,
        )
        if not await cleanup.run():
            sys.exit(1)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operator", required=True, help="name of the operator's Deployment and Lease")
    parser.add_argument("--label", default="", help="the release in the label mcp-exec.dev/release of its namespaces")
    parser.add_argument("--release-namespace", required=True, help="namespace of the release")
    parser.add_argument("namespaces", nargs="+", help="served namespaces")
    return parser


def main() -> None:
    """Run the command. Exit with 1 if a namespace was not cleaned up."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    asyncio.run(clean_up(build_parser().parse_args()))


if __name__ == "__main__":
    main()
