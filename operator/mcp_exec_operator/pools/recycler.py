"""Cleans sandboxes after their executions and returns them to their owners."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorClient, SupervisorConnection
from mcp_exec_common.supervisor.protocol import SandboxError
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.pods.cache import Pod, PodState
from mcp_exec_operator.pools.pool import Pool

log = logging.getLogger(__name__)

_RECYCLE_SECONDS: Final = 10.0
"""How long a sandbox may take to be clean. One that takes longer is deleted."""


@dataclass(kw_only=True, eq=False)
class Recycler:
    """Recycles the pods of one pool. A pod that cannot be cleaned is deleted."""

    pool: Pool
    supervisors: SupervisorClient
    tasks: TaskRegistry
    metrics: Metrics
    retire: Callable[[Pod], None]
    """Deletes a pod."""
    on_idle: Callable[[str, Pod], None]
    """Receives namespace and pod of each pod that became idle."""

    def recycle(self, pod: Pod, *, uid: str) -> None:
        """Start to clean a pod after its execution with this uid."""
        pod.recycling = True
        self.tasks.spawn(self._recycle(pod, uid), name=f"recycle {pod.name}")

    async def recover(self, pod: Pod) -> None:
        """Clean a pod that an earlier operator left for its owner, if it was used, and keep it."""
        try:
            await self._recover(pod)
        finally:
            pod.recycling = False

    async def _recover(self, pod: Pod) -> None:
        if self.pool.reuse.limits is None:
            self._end(pod)
            return
        try:
            use = await self._connect(pod).get_use()
        except SandboxError as error:
            log.warning("pod %s was not recovered: %s", pod.name, error, extra={"pool": self.pool.name})
            self._end(pod)
            return
        pod.uses = max(pod.uses, use.uses)
        if not pod.recycling:
            return  # an execution or a session was found that has it
        if use.id is not None:
            await self._clean(pod, use.id)
        elif use.state == "idle":
            self._keep(pod)
        else:
            self._end(pod)

    def _end(self, pod: Pod) -> None:
        """Delete a pod, unless an execution or a session was found that has it."""
        if pod.recycling:
            self._count("failed")
            self.retire(pod)

    async def _recycle(self, pod: Pod, uid: str) -> None:
        try:
            await self._clean(pod, uid)
        finally:
            pod.recycling = False

    async def _clean(self, pod: Pod, uid: str) -> None:
        try:
            recycled = await self._connect(pod).recycle(uid, timeout_seconds=_RECYCLE_SECONDS)
        except SandboxError as error:
            log.warning("pod %s was not cleaned: %s", pod.name, error, extra={"pool": self.pool.name})
            self._end(pod)
            return
        # the files of wrappers may be gone
        pod.uses, pod.wrappers = max(pod.uses, recycled.uses), None
        self._keep(pod)

    def _keep(self, pod: Pod) -> None:
        kept = self.pool.give_back(pod)
        self._count("kept" if kept else "ended")
        if not kept:
            self.retire(pod)
        elif pod.state is PodState.OWNED:
            self.on_idle(self.pool.namespace, pod)

    def _count(self, outcome: str) -> None:
        self.metrics.recycles.labels(self.pool.namespace, self.pool.name, outcome).inc()

    def _connect(self, pod: Pod) -> SupervisorConnection:
        return self.supervisors.get_connection(namespace=self.pool.namespace, pod=pod.name, address=pod.address)
