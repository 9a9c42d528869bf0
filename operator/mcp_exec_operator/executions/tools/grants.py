"""Access of executions to tools: the broker's address, the grant, and the wrappers in the pod."""

import asyncio
from dataclasses import dataclass
from math import ceil
from time import time
from typing import Final

from mcp_exec_api.reasons.execution import Reason
from mcp_exec_api.sandbox_pool import PoolTools
from mcp_exec_common.broker.grants import build_grant
from mcp_exec_common.supervisor.protocol import JobTools
from mcp_exec_operator.executions.binding import Binding
from mcp_exec_operator.executions.outcome import EndedBeforeRun, build_failure
from mcp_exec_operator.executions.record import ExecutionRecord
from mcp_exec_operator.toolservers.component import BrokerDiscovery, BrokerReplica
from mcp_exec_operator.toolservers.wrappers import WrapperDistributor

_GRACE_SECONDS: Final = 60
"""How long a grant outlives the longest run, for its binding and for calls that end with it."""
_CHECK_SECONDS: Final = 0.1
_CHECKS: Final = 50
"""How often it is checked whether the broker has a pod, before an execution with tools fails."""
_DENY_ALL: Final = PoolTools(allow=[], deny=["*.*"])
"""Rules of a pool that was deleted."""


@dataclass(frozen=True, kw_only=True)
class GrantIssuer:
    """Grants tools to executions that ask for them. Other executions never come here."""

    broker: BrokerDiscovery | None
    """The broker; None if none is configured."""
    distributor: WrapperDistributor

    async def check_broker(self) -> None:
        """Wait a bounded time until the broker has a replica. Raises EndedBeforeRun if no tool can be called."""
        if self.broker is None:
            message = "spec.tools: no tool can be called, since this installation has no broker"
            raise EndedBeforeRun(build_failure(Reason.REJECTED, message))
        for _ in range(_CHECKS):
            if self.broker.choose_replica("") is not None:
                return
            await asyncio.sleep(_CHECK_SECONDS)

    async def grant(self, record: ExecutionRecord, binding: Binding, *, run_seconds: float) -> JobTools:
        """Return the tools of the execution's job. Waits at most two seconds for wrappers.

        Raises EndedBeforeRun if no tool can be called. `run_seconds` is the longest time that the run may take.
        """
        broker, replica = self._choose_replica(record.uid)
        spec, pool = binding.spec, binding.pool.spec
        wrappers = await self.distributor.ensure(record.namespace, binding.pod)
        grant = build_grant(
            spec,
            uid=record.uid,
            name=record.name,
            namespace=record.namespace,
            pool_tools=pool.tools if pool is not None else _DENY_ALL,
            caller=record.caller or record.claimed_caller or None,
            pod_address=binding.pod.address,
            replica=replica.uid,
            expires=ceil(time() + run_seconds) + _GRACE_SECONDS,
        )
        return JobTools(
            url=replica.url, token=broker.signer.sign_grant(grant), allow=list(spec.tools), wrappers=wrappers
        )

    def _choose_replica(self, uid: str) -> tuple[BrokerDiscovery, BrokerReplica]:
        replica = self.broker.choose_replica(uid) if self.broker is not None else None
        if self.broker is None or replica is None:
            service = f"{self.broker.namespace}/{self.broker.service}" if self.broker is not None else "none"
            message = f"the broker has no pod: the Service {service} does not exist or has no endpoints"
            raise EndedBeforeRun(build_failure(Reason.BROKER_UNAVAILABLE, message))
        return self.broker, replica
