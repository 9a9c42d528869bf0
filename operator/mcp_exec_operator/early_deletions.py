"""Events and counts of executions that were deleted before their TTL."""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_api.meta import now
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_operator.kube.api import OperatorApi
from mcp_exec_operator.kube.events import build_event
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.stored import StoredExecution

log = logging.getLogger(__name__)

_GATHER_SECONDS: Final = 10.0
"""Time for which the deletions of a namespace are gathered into one Event."""
_EVENT_SECONDS: Final = 2.0
"""How long the creation of an Event may take."""


@dataclass(kw_only=True)
class _Deleted:
    count: int = 0
    bytes: int = 0


@dataclass(kw_only=True, eq=False)
class EarlyDeletions:
    """Reports deletions: each in a metric, and those of a namespace within ten seconds in one Event.

    The Event is about the last of them, since an Event of a namespace needs an object in it.
    """

    api: OperatorApi
    tasks: TaskRegistry
    metrics: Metrics
    _gathered: dict[str, _Deleted] = field(default_factory=dict)
    _last: dict[str, StoredExecution] = field(default_factory=dict)
    """Last deleted execution by namespace, of those that are gathered."""

    def report(self, deleted: list[StoredExecution]) -> None:
        """Count deleted executions, and report them soon. Never waits."""
        for execution in deleted:
            namespace = execution.key[0]
            self.metrics.deleted_early.labels(namespace).inc()
            if namespace not in self._gathered:
                self._gathered[namespace] = _Deleted()
                self.tasks.spawn(self._send(namespace), name=f"Event of early deletions in {namespace}")
            self._gathered[namespace].count += 1
            self._gathered[namespace].bytes += execution.bytes
            self._last[namespace] = execution

    async def _send(self, namespace: str) -> None:
        await asyncio.sleep(_GATHER_SECONDS)
        gathered, last = self._gathered.pop(namespace), self._last.pop(namespace)
        message = (
            f"deleted {gathered.count} finished executions with {gathered.bytes / 2**20:.1f} MiB before their TTL, "
            "because the namespace stores almost as many or as much as the chart's maxStored and maxStoredBytes allow"
        )
        log.warning(message, extra={"namespace": namespace})
        event = build_event(
            "CodeExecution",
            key=last.key,
            uid=last.uid,
            kind="Warning",
            reason="DeletedEarly",
            message=message,
            moment=now(),
        )
        try:
            async with asyncio.timeout(_EVENT_SECONDS):
                await self.api.create_event(event)
        except (ApiError, TimeoutError) as error:
            log.warning("no Event was created for early deletions: %s", error, extra={"namespace": namespace})
