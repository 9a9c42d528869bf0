"""Probes of starting pods."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

from tests.unit.operator.test_pod_cache import item
from tests.unit.operator.test_pool import pool

from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.pools.readiness import ReadinessProber


@dataclass
class Idle:
    """Supervisors of idle sandboxes that answer once `answer` is set."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    answer: asyncio.Event = field(default_factory=asyncio.Event)
    asked: int = 0

    def get_connection(self, **_: Any) -> "Idle":
        return self

    async def get_state(self) -> str:
        self.asked += 1
        self.begun.set()
        await self.answer.wait()
        return "idle"


async def test_a_new_operator_that_finds_thousands_of_pods_asks_a_few_at_a_time() -> None:
    made, sandboxes, tasks = pool(warm={"min": 2000}, maxPods=3000), Idle(), TaskRegistry()
    for number in range(2000):
        made.base.pods.observe(item(f"pod-{number}"), now=0)
    ReadinessProber(
        supervisors=cast(SupervisorClient, sandboxes), tasks=tasks, metrics=Metrics.create(),
        timeout_seconds=60,
        retire=lambda pod: None, on_warm=lambda pool, pod: None,
    ).probe_starting(made.base)  # fmt: skip
    # the first probe to begin continues after the first step of each probe
    await asyncio.wait_for(sandboxes.begun.wait(), 10)
    assert sandboxes.asked <= 100
    sandboxes.answer.set()
    await tasks.close(grace_seconds=30)
    assert made.counts.warm == 2000
