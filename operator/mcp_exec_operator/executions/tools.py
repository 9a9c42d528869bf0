"""What the code of an execution needs to call tools: the broker's address, its grant, and the wrappers in its pod."""

from dataclasses import dataclass
from math import ceil
from time import time
from typing import Final

from mcp_exec_api.code_execution import CodeExecutionSpec, Reason
from mcp_exec_api.sandbox_pool import PoolTools
from mcp_exec_common.broker.grants import build_grant
from mcp_exec_common.supervisor.protocol import JobTools
from mcp_exec_operator.executions.outcome import Decided
from mcp_exec_operator.executions.record import Entry
from mcp_exec_operator.executions.status import failed
from mcp_exec_operator.pods.cache import Pod
from mcp_exec_operator.pools.partition import Partition
from mcp_exec_operator.toolservers.broker import BrokerDiscovery
from mcp_exec_operator.toolservers.wrappers import WrapperDistributor

_GRACE_SECONDS: Final = 60
"""How long a grant outlives the longest run: its binding, and calls that end with it."""
_NOTHING: Final = PoolTools(allow=[], deny=["*.*"])
"""What a pool allows that is gone."""


@dataclass(frozen=True, kw_only=True)
class Tooling:
    """Equips executions that ask for tools. Those that don't never come here."""

    broker: BrokerDiscovery | None
    """The broker; None where none is configured."""
    distributor: WrapperDistributor

    def check(self) -> tuple[BrokerDiscovery, str]:
        """The broker and its address. Raises Decided where no tool can be called."""
        if self.broker is None:
            message = "spec.tools: no tool can be called, since this installation has no broker"
            raise Decided(failed(Reason.REJECTED, message))
        if self.broker.url is None:
            message = (
                f"the broker's Service {self.broker.namespace}/{self.broker.service} is not there, or has no address"
            )
            raise Decided(failed(Reason.BROKER_UNAVAILABLE, message))
        return self.broker, self.broker.url

    async def equip(
        self, entry: Entry, spec: CodeExecutionSpec, *, pool: Partition, pod: Pod, run_seconds: float
    ) -> JobTools:
        """What the execution's job says of its tools. Raises Decided; waits for wrappers two seconds at most.

        `run_seconds` is how long the run may take at most.
        """
        broker, url = self.check()
        wrappers = await self.distributor.ensure(entry.namespace, pod)
        grant = build_grant(
            spec,
            uid=entry.uid,
            name=entry.name,
            namespace=entry.namespace,
            pool_tools=pool.spec.tools if pool.spec is not None else _NOTHING,
            caller=entry.caller or None,
            expires=ceil(time() + run_seconds) + _GRACE_SECONDS,
        )
        return JobTools(url=url, token=broker.signer.sign_grant(grant), allow=list(spec.tools), wrappers=wrappers)
