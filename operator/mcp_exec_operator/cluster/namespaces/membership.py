"""Which of the namespaces that the release names are served now. Each is decided alone and affects no other one.

A namespace is not served while another release has it, while rights in it are missing, or while it does not exist.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar, Final

from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.process.namespaces import ServedNamespaces
from mcp_exec_common.util.signals import Signal
from mcp_exec_operator.cluster.kube.api import GONE_CODES, check_rights
from mcp_exec_operator.cluster.namespaces.claims import NamespaceClaims
from mcp_exec_operator.metrics import Metrics

log = logging.getLogger(__name__)

_CONCURRENCY: Final = 8
"""Namespaces that are checked at the same time."""


@dataclass(kw_only=True, eq=False)
class NamespaceMembership:
    """The served namespaces of this process, be it leader or standby: every replica renews the claims."""

    CHECK_SECONDS: ClassVar[float] = 20.0
    """Interval of checks."""

    kube: KubeClient
    claims: NamespaceClaims
    metrics: Metrics
    named: tuple[str, ...]
    """Namespaces that the release names."""
    served: ServedNamespaces = field(default_factory=lambda: ServedNamespaces(()))
    refused: dict[str, str] = field(default_factory=dict)
    """Why the other named namespaces are not served."""
    renamed: Signal[[]] = field(default_factory=Signal)
    """Sent when the release names other namespaces."""
    _suspected: set[str] = field(default_factory=set)
    """Served namespaces whose rights may be gone."""
    _wakeup: asyncio.Event = field(default_factory=asyncio.Event)

    def name(self, names: tuple[str, ...]) -> None:
        """Serve these namespaces from now on. Those that are new are checked first."""
        if set(names) == set(self.named):
            return
        log.info("the served namespaces change", extra={"namespaces": names})
        self.named = names
        for removed in {*self.served, *self.refused} - set(names):
            self._forget(removed)
        self.renamed.emit()
        self.changed()

    def suspect(self, namespace: str) -> None:
        """Check soon whether the objects of a namespace can still be listed."""
        self._suspected.add(namespace)
        self.changed()

    def changed(self) -> None:
        """Check the namespaces soon."""
        self._wakeup.set()

    def describe_refusals(self) -> str:
        """Return why no namespace is served, or an empty text if one is."""
        if len(self.served):
            return ""
        reasons = (f"namespace {name}: {why}" for name, why in self.refused.items())
        return "; ".join(["no namespace is served", *reasons])

    async def run(self) -> None:
        """Check the namespaces at each interval, and when something has changed, for ever."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.CHECK_SECONDS):
                    await self._wakeup.wait()
            self._wakeup.clear()
            await self.check()

    async def check(self) -> None:
        """Renew the claims, and decide again about each namespace."""
        slots = asyncio.Semaphore(_CONCURRENCY)

        async def check(namespace: str) -> None:
            async with slots:
                await self._check(namespace)

        await asyncio.gather(*(check(namespace) for namespace in self.named))
        self.metrics.refused_namespaces.set(len(self.refused))

    async def _check(self, namespace: str) -> None:
        holder = ""
        try:
            if namespace not in self.served or namespace in self._suspected:
                self._suspected.discard(namespace)
                await check_rights(self.kube, namespace)
            problem = holder = await self.claims.claim(namespace)
        except ApiError as error:
            if error.code not in GONE_CODES and namespace in self.served:
                log.warning("namespace %s stays served, but its claim was not renewed: %s", namespace, error)
                return
            problem = f"its objects can't be listed, or its claim can't be written: {error}"
        if namespace not in self.named:
            return  # it was removed meanwhile
        if not problem:
            self._serve(namespace)
        elif self._refuse(namespace, problem) and holder:
            await self.claims.report(namespace, holder)

    def _serve(self, namespace: str) -> None:
        self.refused.pop(namespace, None)
        if namespace not in self.served:
            log.info("namespace %s is served from now on", namespace)
            self.served.add(namespace)

    def _refuse(self, namespace: str, problem: str) -> bool:
        """Serve a namespace no longer. Return True if the problem is a new one."""
        if self.refused.get(namespace) == problem:
            return False
        log.error("namespace %s is not served, nothing runs in it: %s", namespace, problem)
        self.refused[namespace] = problem
        if namespace in self.served:
            self.served.remove(namespace)
        return True

    def _forget(self, namespace: str) -> None:
        self.refused.pop(namespace, None)
        self._suspected.discard(namespace)
        if namespace in self.served:
            log.info("namespace %s is not served any more: the release does not name it", namespace)
            self.served.remove(namespace)
