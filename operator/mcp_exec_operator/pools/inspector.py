"""Deletes pods that somebody altered after the operator made them, whatever they do."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_operator.kube.api import OperatorApi
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.pods.cache import Pod, PodState
from mcp_exec_operator.pods.integrity import ChangeableParts, find_alterations
from mcp_exec_operator.pods.status import is_terminating
from mcp_exec_operator.pools.pool import Pool

log = logging.getLogger(__name__)

_MAX_READS: Final = 8
"""Concurrent reads of pods that disappeared, of which a lost node may have many."""
_LABELS: Final = ("metadata.labels",)
"""What was changed in a pod that watches do not select any more, if that is unknown."""


@dataclass(kw_only=True, eq=False)
class PodInspector:
    """Inspects the pods of one pool. The labels of an altered pod may not select its NetworkPolicies any more."""

    pool: Pool
    api: OperatorApi
    tasks: TaskRegistry
    metrics: Metrics
    delete: Callable[[Pod], Coroutine[None, None, None]]
    """Deletes a pod."""
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MAX_READS))

    def inspect(self, pod: Pod, item: Object) -> None:
        """Delete a pod whose object shows that it was altered."""
        if self.pool.alterations.inspect(pod, item):
            return
        self._count()
        if self.pool.pods.retire(pod):
            self.tasks.spawn(self.delete(pod), name=f"delete {pod.name}")

    def accept(self, pod: Pod, stored: Object) -> None:
        """Compare later objects of a pod with this one, which was verified."""
        pod.parts = ChangeableParts.of(stored)
        if pod.newest is not None:  # a watch was faster than the answer
            self.inspect(pod, pod.newest)

    def check_gone(self, pod: Pod) -> None:
        """Delete a pod that no watch or list shows any more, if it exists: somebody took its labels."""
        ends = pod.state is PodState.TERMINATING or (pod.newest is not None and is_terminating(pod.newest))
        if pod.uid is not None and not ends:
            self.tasks.spawn(self._check_gone(pod), name=f"look for {pod.name}")

    async def _check_gone(self, pod: Pod) -> None:
        try:
            async with self._slots:
                found = await self.api.get_pod(self.pool.namespace, pod.name)
        except ApiError as error:
            log.warning("pod %s may still exist: %s", pod.name, error, extra={"pool": self.pool.name})
        else:
            if found is None or found["metadata"]["uid"] != pod.uid or is_terminating(found):
                return
            changed = find_alterations(pod.parts, ChangeableParts.of(found)) if pod.parts is not None else ()
            self.pool.alterations.note(pod, changed or _LABELS)
            self._count()
        await self.delete(pod)

    def _count(self) -> None:
        self.metrics.pod_failures.labels(self.pool.namespace, self.pool.name, Reason.POD_CHANGED).inc()
        self.pool.wakeup.set()
