"""The parts that drive rollouts, built and run together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, Self

from mcp_exec_api.constants import ROLLOUTS
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.pools.registry import PoolRegistry
from mcp_exec_operator.rollouts.api import RolloutApi
from mcp_exec_operator.rollouts.controller import RolloutController
from mcp_exec_operator.rollouts.measures import MeasuresCache, MeasuresReader
from mcp_exec_operator.rollouts.metrics import RolloutMetrics

_SYNC_SECONDS: Final = 3.0
"""Longest wait at the start for the first lists, which a cluster without the definition never answers."""


@dataclass(kw_only=True, eq=False)
class RolloutComponent:
    """All parts of the operator that drive rollouts."""

    kube: KubeClient
    namespaces: tuple[str, ...]
    controller: RolloutController
    _reflectors: list[Reflector] = field(default_factory=list)

    @classmethod
    def create(
        cls,
        *,
        kube: KubeClient,
        namespaces: tuple[str, ...],
        pools: PoolRegistry,
        metrics: Metrics,
        reader: MeasuresReader | None = None,
    ) -> Self:
        """Build all parts; nothing runs yet. Without a reader no guard has samples."""
        return cls(
            kube=kube,
            namespaces=namespaces,
            controller=RolloutController(
                api=RolloutApi(kube=kube, metrics=metrics),
                pools=pools,
                measures=MeasuresCache(reader=reader),
                metrics=RolloutMetrics.create(metrics.registry),
            ),
        )

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch rollouts while the context lasts."""
        async with AsyncExitStack() as stack:
            for namespace in self.namespaces:
                reflector = Reflector(
                    kube=self.kube,
                    path=custom_resource_path(ROLLOUTS, namespace=namespace),
                    on_change=self.controller.observe,
                    transform=_strip_rollout,
                )
                self._reflectors.append(reflector)
                await stack.enter_async_context(reflector.run_in_background())
            try:
                yield
            finally:
                self._reflectors.clear()

    async def prepare(self) -> None:
        """Raise the pools as the stages need it, before pools delete pods that are too many."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_SYNC_SECONDS):
                for reflector in self._reflectors:
                    await reflector.synced.wait()
        self.controller.raise_pools()


def _strip_rollout(rollout: Object) -> Object:
    """Return what a deletion missed by the watch has to name."""
    return {"metadata": {name: rollout["metadata"].get(name, "") for name in ("namespace", "name", "uid")}}
