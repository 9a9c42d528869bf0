"""Records of the executions of one namespace."""

from collections.abc import Coroutine, Mapping
from typing import Any

from mcp_exec_api.constants import DEFAULT_LANGUAGE, Language
from mcp_exec_common.broker.records import RecordsClient
from mcp_exec_operator.core.feature import Feature, FeatureContext
from mcp_exec_operator.features.records.recorder import ExecutionRecorder


class RecordsFeature(Feature):
    """Sends the broker a record of what ended. No execution is deleted by its TTL before it has a record."""

    def __init__(self, context: FeatureContext) -> None:
        """Build the recorder, if the release keeps records."""
        self.recorder: ExecutionRecorder | None = None
        self._namespace, self._pools = context.namespace, context.pools
        if context.broker is not None and context.settings.records:
            self.recorder = ExecutionRecorder(
                receiver=RecordsClient(context.broker.client),
                api=context.api,
                callers=context.callers,
                find_language=self._find_language,
                code=context.settings.records_code,
                metrics=context.metrics,
            )
            context.ttl.record_with(self.recorder)

    def _find_language(self, pool: str) -> Language:
        """Return the language of a pool; the default if the pool is gone."""
        found = (each.shape.language for each in self._pools.list_pools(self._namespace) if each.name == pool)
        return next(found, DEFAULT_LANGUAGE)

    def list_loops(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """Return the recorder's loop."""
        return {} if self.recorder is None else {"records": self.recorder.run()}

    def discard_measures(self) -> None:
        """Drop what is counted for the namespace."""
        if self.recorder is not None:
            self.recorder.close()
