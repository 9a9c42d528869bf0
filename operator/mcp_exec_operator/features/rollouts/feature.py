"""Rollouts in one namespace."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from mcp_exec_api.constants import ROLLOUTS
from mcp_exec_common.broker.records import RecordsClient
from mcp_exec_common.kube.client import custom_resource_path
from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_operator.cluster.kube.observations import strip
from mcp_exec_operator.core.feature import Feature, FeatureContext
from mcp_exec_operator.features.rollouts.controller import RolloutController
from mcp_exec_operator.features.rollouts.measures import MeasuresCache, RecordsReader
from mcp_exec_operator.features.rollouts.record import RolloutMetrics

_SYNC_SECONDS: Final = 3.0
"""Longest wait at the start for the first list, which a cluster without the definition never answers."""


class RolloutsFeature(Feature):
    """Drives the stages of rollouts, and raises the pools that they need."""

    metrics_class = RolloutMetrics

    def __init__(self, context: FeatureContext) -> None:
        """Build all parts. Without records no guard has samples."""
        self.namespace = context.namespace
        self.metrics = context.metrics.of(RolloutMetrics)
        has_records = context.settings.records and context.broker is not None
        reader = RecordsReader(records=RecordsClient(context.broker.client)) if context.broker and has_records else None
        self.controller = RolloutController(
            api=context.api, pools=context.pools, measures=MeasuresCache(reader=reader), metrics=self.metrics
        )
        self._reflector = Reflector(
            kube=context.kube,
            path=custom_resource_path(ROLLOUTS, namespace=context.namespace),
            on_change=self.controller.observe,
            transform=strip,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch rollouts while the context lasts."""
        async with self._reflector.run_in_background():
            yield

    async def prepare(self) -> None:
        """Raise the pools as the stages need it, before pools delete pods that are too many."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_SYNC_SECONDS):
                await self._reflector.synced.wait()
        self.controller.raise_pools()

    def list_serving_loops(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """Return the controller's loop."""
        return {"rollouts": self.controller.run()}

    def discard_measures(self) -> None:
        """Drop the series of the namespace."""
        self.metrics.discard_namespace(self.namespace)
