"""Records of the executions of one namespace."""

from collections.abc import Coroutine, Mapping
from typing import Any

from mcp_exec_common.broker.records import RecordsClient
from mcp_exec_operator.core.feature import Feature, FeatureContext
from mcp_exec_operator.features.records.recorder import ExecutionRecorder


class RecordsFeature(Feature):
    """Sends the broker a record of what ended. No execution is deleted by its TTL before it has a record."""

    def __init__(self, context: FeatureContext) -> None:
        """Build the recorder, if the release keeps records."""
        self.recorder: ExecutionRecorder | None = None
        if context.broker is not None and context.settings.records:
            self.recorder = ExecutionRecorder(
                receiver=RecordsClient(context.broker.client),
                api=context.api,
                callers=context.callers,
                code=context.settings.records_code,
                metrics=context.metrics,
            )
            context.ttl.record_with(self.recorder)

    def list_loops(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """Return the recorder's loop."""
        return {} if self.recorder is None else {"records": self.recorder.run()}

    def discard_measures(self) -> None:
        """Drop what is counted for the namespace."""
        if self.recorder is not None:
            self.recorder.close()
