"""Probes of starting pods."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

from tests.support.constants import SANDBOX_KEY
from tests.unit.operator.test_pod_cache import item
from tests.unit.operator.test_pool import pool

from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_common.supervisor.protocol import SandboxHealth, SandboxUse
from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.core.pods.authenticity import PodAuthenticator
from mcp_exec_operator.core.pods.network_policy import ReleasePods
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.core.pools.probes import ReadinessProber, Recycler
from mcp_exec_operator.core.pools.reviews import PodAction
from mcp_exec_operator.core.pools.services import PodRemover, PoolServices
from mcp_exec_operator.metrics import Metrics
from mcp_exec_tools.protocol import PROTOCOLS


@dataclass
class Idle:
    """Supervisors of idle sandboxes that answer once `answer` is set."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    answer: asyncio.Event = field(default_factory=asyncio.Event)
    asked: int = 0

    def get_connection(self, **_: Any) -> "Idle":
        return self

    async def get_health(self) -> SandboxHealth:
        self.asked += 1
        self.begun.set()
        await self.answer.wait()
        return SandboxHealth(state="idle", protocol=PROTOCOLS[-1])

    async def get_use(self) -> SandboxUse:
        return SandboxUse(state="idle", id=None, uses=0)


def prober(made: Pool, sandboxes: Any, tasks: TaskRegistry) -> ReadinessProber:
    services = PoolServices(
        api=cast(OperatorApi, None),
        supervisors=cast(SupervisorClient, sandboxes),
        authenticator=PodAuthenticator(keys=SandboxKeys(SANDBOX_KEY)),
        tasks=tasks,
        metrics=Metrics(),
        release=ReleasePods(namespace="system"),
    )
    remover = PodRemover(pool=made, services=services)
    recycler = Recycler(pool=made, services=services, remover=remover)
    return ReadinessProber(pool=made, services=services, remover=remover, recycler=recycler)


def probe_starting(found: ReadinessProber) -> None:
    for review in found.pool.review(0):
        if PodAction.PROBE in review.actions:
            found.probe(review.pod)


async def test_a_new_operator_that_finds_thousands_of_pods_asks_a_few_at_a_time() -> None:
    made, sandboxes, tasks = pool(warm={"min": 2000}, maxPods=3000), Idle(), TaskRegistry()
    for number in range(2000):
        made.pods.observe(item(f"pod-{number}"), now=0).trust.verified = True
    probe_starting(prober(made, sandboxes, tasks))
    # the first probe to begin continues after the first step of each probe
    await asyncio.wait_for(sandboxes.begun.wait(), 10)
    assert sandboxes.asked <= 100
    sandboxes.answer.set()
    await tasks.close(grace_seconds=30)
    assert made.counts.warm == 2000
