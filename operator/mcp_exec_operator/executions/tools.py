"""Access of executions to tools: the broker's address, the grant, and the wrappers in the pod."""

from dataclasses import dataclass
from math import ceil
from time import time
from typing import Final

from mcp_exec_api.reasons import Reason
from mcp_exec_api.sandbox_pool import PoolTools
from mcp_exec_common.broker.grants import build_grant
from mcp_exec_common.supervisor.protocol import JobTools
from mcp_exec_operator.executions.binding import Binding
from mcp_exec_operator.executions.outcome import EndedBeforeRun, build_failure
from mcp_exec_operator.executions.record import ExecutionRecord
from mcp_exec_operator.toolservers.broker import BrokerDiscovery
from mcp_exec_operator.toolservers.wrappers import WrapperDistributor

_GRACE_SECONDS: Final = 60
"""How long a grant outlives the longest run, for its binding and for calls that end with it."""
_DENY_ALL: Final = PoolTools(allow=[], deny=["*.*"])
"""Rules of a pool that was deleted."""


@dataclass(frozen=True, kw_only=True)
class GrantIssuer:
    """Grants tools to executions that ask for them. Other executions never come here."""

    broker: BrokerDiscovery | None
    """The broker; None if none is configured."""
    distributor: WrapperDistributor

    def check_broker(self) -> tuple[BrokerDiscovery, str]:
        """Return the broker and its URL. Raises EndedBeforeRun if no tool can be called."""
        if self.broker is None:
            message = "spec.tools: no tool can be called, since this installation has no broker"
            raise EndedBeforeRun(build_failure(Reason.REJECTED, message))
        if self.broker.url is None:
            service = f"{self.broker.namespace}/{self.broker.service}"
            message = f"the broker's Service {service} does not exist or has no address"
            raise EndedBeforeRun(build_failure(Reason.BROKER_UNAVAILABLE, message))
        return self.broker, self.broker.url

    async def grant(self, record: ExecutionRecord, binding: Binding, *, run_seconds: float) -> JobTools:
        """Return the tools of the execution's job. Waits at most two seconds for wrappers.

        Raises EndedBeforeRun if no tool can be called. `run_seconds` is the longest time that the run may take.
        """
        broker, url = self.check_broker()
        spec, pool = binding.spec, binding.partition.spec
        wrappers = await self.distributor.ensure(record.namespace, binding.pod)
        grant = build_grant(
            spec,
            uid=record.uid,
            name=record.name,
            namespace=record.namespace,
            pool_tools=pool.tools if pool is not None else _DENY_ALL,
            caller=record.caller or None,
            expires=ceil(time() + run_seconds) + _GRACE_SECONDS,
        )
        return JobTools(url=url, token=broker.signer.sign_grant(grant), allow=list(spec.tools), wrappers=wrappers)
