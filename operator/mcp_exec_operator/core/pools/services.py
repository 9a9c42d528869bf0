"""What the controllers of all pools share, and how they get rid of a pool's pods."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorClient, SupervisorConnection
from mcp_exec_common.util.signals import Signal
from mcp_exec_operator.cluster.kube.api import OperatorApi, WritePriority
from mcp_exec_operator.core.pods.authenticity import PodAuthenticator
from mcp_exec_operator.core.pods.manifest import NO_ADDRESSES, IsolationAddresses
from mcp_exec_operator.core.pods.network_policy import ReleasePods
from mcp_exec_operator.core.pods.pod import Pod
from mcp_exec_operator.core.pods.status import PodProblem
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.metrics import Metrics

log = logging.getLogger(__name__)

_RESULT_FIRST_SECONDS: Final = 0.05
"""Delay before a used pod is deleted: its deletion, and its replacement, must not compete with the result."""
_NO_FAULT: Final = frozenset({Reason.POOL_UNAVAILABLE, Reason.QUOTA_EXCEEDED, Reason.UNSCHEDULABLE})
"""Reasons that are not the fault of the pool's template: there is no room, or no answer."""


@dataclass(frozen=True, kw_only=True)
class PoolServices:
    """What all pool controllers use."""

    api: OperatorApi
    supervisors: SupervisorClient
    authenticator: PodAuthenticator
    tasks: TaskRegistry
    metrics: Metrics
    release: ReleasePods
    isolation: Callable[[], IsolationAddresses] = lambda: NO_ADDRESSES
    """Returns the addresses that a new sandbox needs to verify its isolation."""
    assign_users: bool = True
    """Whether each sandbox gets a user ID of its own, or that which the cluster assigns."""
    broker: bool = False
    """Whether there is a broker that sandboxes may reach."""
    write_priority: WritePriority = field(default_factory=WritePriority)
    idle: Signal[[Pool, Pod]] = field(default_factory=Signal)
    """Sent with the pool and each pod that became warm, or idle for its owner, and that nothing waited for."""

    def connect(self, pool: Pool, pod: Pod) -> SupervisorConnection:
        """Return the connection to the supervisor of a pod."""
        return self.supervisors.get_connection(
            namespace=pool.namespace, pod=pod.name, address=pod.seen.address, digest=pod.seen.token_sha256
        )


@dataclass(frozen=True, kw_only=True)
class PodRemover:
    """Deletes pods of one pool, and counts why they failed."""

    pool: Pool
    services: PoolServices

    def retire(self, pod: Pod) -> None:
        """Delete a pod, once."""
        if self.pool.pods.retire(pod):
            self.services.tasks.spawn(self._replace(pod), name=f"delete {pod.name}")

    def fail(self, pod: Pod, problem: PodProblem | None) -> None:
        """Count a pod as failed and delete it."""
        failure = problem or PodProblem(reason=Reason.POD_FAILED, message=f"pod {pod.name} failed")
        self.pool.supply.fail(failure, now=monotonic())
        self.count_failure(failure.reason)
        if not pod.start.ready_at:
            self.record_failure(failure)
        log.warning("pod %s: %s", pod.name, failure.message, extra={"pool": self.pool.name, "pod": pod.name})
        self.retire(pod)

    def record_failure(self, problem: PodProblem) -> None:
        """Record that a pod did not become ready for a reason that may be the fault of the pool's template."""
        if problem.reason not in _NO_FAULT:
            self.pool.health.record_failure()

    def count_failure(self, reason: Reason) -> None:
        """Count a pod that failed or was refused."""
        self.services.metrics.pod_failures.labels(self.pool.namespace, self.pool.name, reason).inc()

    async def delete(self, pod: Pod, *, grace_seconds: int = 1) -> None:
        """Delete a pod from the API server."""
        try:
            await self.services.api.delete_pod(
                self.pool.namespace, pod.name, uid=pod.seen.uid, grace_seconds=grace_seconds
            )
        except ApiError as error:
            # the next resync tries again
            log.warning("pod %s was not deleted: %s", pod.name, error, extra={"pool": self.pool.name})

    async def _replace(self, pod: Pod) -> None:
        await asyncio.sleep(_RESULT_FIRST_SECONDS)
        if not self.pool.queue:
            await self.services.write_priority.wait_until_idle()
        self.pool.refill_now()
        await self.delete(pod)
