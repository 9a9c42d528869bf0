"""Probes the supervisors of starting pods until they report that they are idle."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorClient, SupervisorConnection
from mcp_exec_common.supervisor.protocol import SandboxError, SandboxNotProven
from mcp_exec_common.util.backoff import delays
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.pods.cache import Pod, PodState
from mcp_exec_operator.pods.status import PodProblem
from mcp_exec_operator.pools.pool import Pool

log = logging.getLogger(__name__)

_FIRST_DELAY: Final = 0.02
_LAST_DELAY: Final = 0.5
_MAX_PROBES: Final = 32
"""Concurrent probes of a pool. A new leader may find thousands of pods and must renew its lease meanwhile."""
OnWarm = Callable[[str, Pod], None]
"""Receives namespace and pod of each pod that became warm and that no execution waited for. Must not block."""


class SandboxNotIdle(Exception):
    """The sandbox has accepted an execution."""


@dataclass(kw_only=True, eq=False)
class ReadinessProber:
    """Probes the pods of one pool."""

    pool: Pool
    supervisors: SupervisorClient
    tasks: TaskRegistry
    metrics: Metrics
    timeout_seconds: float
    retire: Callable[[Pod], None]
    """Deletes a pod that cannot be used."""
    fail: Callable[[Pod, PodProblem], None]
    """Counts a pod as failed and deletes it."""
    on_warm: OnWarm
    recover: Callable[[Pod], Awaitable[None]]
    """Cleans a pod that an earlier operator left for its owner."""
    _probed: set[str] = field(default_factory=set)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MAX_PROBES))

    def probe_starting(self) -> None:
        """Start to probe the starting pods that have an address, and to clean those that an earlier operator left."""
        for pod in self.pool.pods.pop_left():
            self.tasks.spawn(self._recover(pod), name=f"recover {pod.name}")
        for pod in self.pool.pods.all(PodState.STARTING):
            if pod.verified and pod.address and not pod.labelled_busy and pod.name not in self._probed:
                self._probed.add(pod.name)
                self.tasks.spawn(self._probe(pod), name=f"probe {pod.name}")

    async def _recover(self, pod: Pod) -> None:
        async with self._slots:
            await self.recover(pod)

    async def _probe(self, pod: Pod) -> None:
        supervisor = self.supervisors.get_connection(namespace=self.pool.namespace, pod=pod.name, address=pod.address)
        first = not pod.ready_at
        try:
            idle = await wait_until_idle(
                supervisor,
                wanted=lambda: pod.state is PodState.STARTING and not pod.lost,
                slots=self._slots,
                timeout_seconds=self.timeout_seconds,
                check_uses=not pod.created_here,
            )
        except SandboxNotIdle as error:
            fields = {"pool": self.pool.name, "pod": pod.name}
            log.warning("pod %s is in use, but not bound to an execution: %s", pod.name, error, extra=fields)
            self.retire(pod)
        except SandboxNotProven as error:
            self.fail(pod, PodProblem(reason=Reason.POD_FAILED, message=f"pod {pod.name}: {error}"))
        else:
            if idle and self.pool.mark_ready(pod.name) is not None:
                if first:
                    start = self.metrics.pod_starts.labels(self.pool.namespace, self.pool.name)
                    start.observe(pod.ready_at - pod.since)
                if pod.state is PodState.WARM:
                    self.on_warm(self.pool.namespace, pod)
        finally:
            self._probed.discard(pod.name)


async def wait_until_idle(
    supervisor: SupervisorConnection,
    *,
    wanted: Callable[[], bool],
    slots: asyncio.Semaphore,
    timeout_seconds: float,
    check_uses: bool = False,
) -> bool:
    """Return True once the sandbox is idle, False if it is not wanted any more or after the timeout.

    With `check_uses`, a sandbox that was cleaned after an execution is not idle: whose it was is unknown. Raises
    SandboxNotIdle if it runs or ran an execution, and SandboxNotProven if something else is at its address.
    """
    deadline = monotonic() + timeout_seconds
    for delay in delays(first=_FIRST_DELAY, last=_LAST_DELAY, factor=1.5):
        if not wanted() or monotonic() >= deadline:
            break
        try:
            async with slots:
                state = await supervisor.get_state()
                uses = (await supervisor.get_use()).uses if check_uses else 0
        except SandboxNotProven:
            raise
        except SandboxError:
            await asyncio.sleep(delay)
        else:
            if state != "idle" or uses:
                raise SandboxNotIdle(f"{state}, after {uses} executions" if uses else state)
            return True
    return False
