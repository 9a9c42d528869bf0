"""Finds out when the pods of a pool that have started are ready: their supervisors say so."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorClient, SupervisorConnection
from mcp_exec_common.supervisor.protocol import SandboxError
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.pods.cache import Pod, PodState
from mcp_exec_operator.pools.partition import Partition

log = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.02
_LAST_PAUSE: Final = 0.5
_AT_ONCE: Final = 32
"""Sandboxes that are asked at a time. A new operator may find thousands, and has to renew its lease meanwhile."""
OnWarm = Callable[[Partition, Pod], None]
"""Told of each pod that has become warm and that nobody waited for; it must not wait."""


@dataclass(kw_only=True, eq=False)
class ReadinessProber:
    """Asks each pod that starts, over and over, until it is idle."""

    pool: Partition
    sandboxes: SupervisorClient
    tasks: TaskRegistry
    metrics: Metrics
    timeout_seconds: float
    retire: Callable[[Pod], None]
    """Ends a pod that can't be used."""
    on_warm: OnWarm
    _probed: set[str] = field(default_factory=set)
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))

    def probe_started(self) -> None:
        """Begins to ask those that have an address and are not asked yet."""
        for pod in self.pool.inventory.all(PodState.STARTING):
            if pod.address and not pod.labelled_busy and pod.name not in self._probed:
                self._probed.add(pod.name)
                self.tasks.spawn(self._probe(pod), name=f"probe {pod.name}")

    async def _probe(self, pod: Pod) -> None:
        sandbox = self.sandboxes.get_connection(namespace=self.pool.namespace, pod=pod.name, address=pod.address)
        first = not pod.ready_at
        try:
            ready = await until_idle(
                sandbox,
                wanted=lambda: pod.state is PodState.STARTING and not pod.lost,
                turns=self._turns,
                timeout_seconds=self.timeout_seconds,
            )
        except SandboxNotIdle as error:
            # it has run something and no execution has it
            log.warning("pod %s is used, but by no execution: %s", pod.name, error, extra={"pool": self.pool.name})
            self.retire(pod)
        else:
            if ready and self.pool.became_ready(pod.name) is not None:
                if first:
                    self.metrics.pod_starts.labels(self.pool.name).observe(pod.ready_at - pod.since)
                if pod.state is PodState.WARM:
                    self.on_warm(self.pool, pod)
        finally:
            self._probed.discard(pod.name)


class SandboxNotIdle(Exception):
    """The sandbox has accepted an execution."""


async def until_idle(
    sandbox: SupervisorConnection, *, wanted: Callable[[], bool], turns: asyncio.Semaphore, timeout_seconds: float
) -> bool:
    """True once it is idle; False where it is no longer wanted or the time is up. It is asked in one of `turns`.

    Raises SandboxNotIdle where it runs or ran something.
    """
    deadline = monotonic() + timeout_seconds
    pause = _FIRST_PAUSE
    while wanted() and monotonic() < deadline:
        try:
            async with turns:
                state = await sandbox.get_state()
        except SandboxError:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LAST_PAUSE)
        else:
            if state != "idle":
                raise SandboxNotIdle(state)
            return True
    return False
