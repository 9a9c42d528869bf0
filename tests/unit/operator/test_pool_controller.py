"""The controller of a pool, with an API server that refuses some requests, or whose objects change meanwhile."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from tests.support.constants import SANDBOX_KEY
from tests.unit.operator.test_pod_cache import item

from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.core.pods.authenticity import PodAuthenticator
from mcp_exec_operator.core.pods.network_policy import ReleasePods
from mcp_exec_operator.core.pools.controller import PoolController
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.core.pools.reviews import PodTimes
from mcp_exec_operator.core.pools.services import PoolServices
from mcp_exec_operator.core.scaling.plan import PodPlan
from mcp_exec_operator.metrics import Metrics


@dataclass
class NoEvents:
    """An API server that lets nobody read Events."""

    on_verify: Callable[[], None] = lambda: None
    """Called when the NetworkPolicy is read."""
    reads: int = 0

    async def get_pod_warning(self, namespace: str, name: str) -> str:
        self.reads += 1
        raise ApiError(code=403, reason="Forbidden", message="events is forbidden")

    async def get_network_policy(self, *_: str) -> None:
        self.on_verify()

    async def create_network_policy(self, policy: Any) -> Any:
        return {**policy, "metadata": {**policy["metadata"], "uid": "policy"}}

    async def patch_pool_status(self, *_: Any) -> Any:
        return {"metadata": {"uid": "u", "generation": 1}}

    async def create_event(self, event: Any) -> None:
        pass


@dataclass(kw_only=True, eq=False)
class BusyPool(Pool):
    """A pool that something happens to all the time."""

    reconciles: int = 0
    tenth: asyncio.Event = field(default_factory=asyncio.Event)

    def plan_pods(self, *, now: float, max_create: int) -> PodPlan:
        self.reconciles += 1
        self.changed()
        if self.reconciles == 10:
            self.tenth.set()
        return super().plan_pods(now=now, max_create=max_create)


async def test_events_that_cannot_be_read_are_not_asked_for_at_each_reconcile() -> None:
    times, api, tasks = PodTimes(start_timeout=1e9), NoEvents(), TaskRegistry()
    pool = BusyPool(namespace="agents", name="default", times=times)
    pool.configure({"metadata": {"uid": "u", "generation": 1}, "spec": {"image": "i", "warm": {"min": 1}}})
    slow = item("slow", template=pool.shape.template_hash)
    slow["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    slow["status"].pop("podIP", None)
    pool.pods.observe(slow, now=0)
    tasks.spawn(control(pool, api, tasks).run(), name="pool")
    await asyncio.wait_for(pool.tenth.wait(), 30)
    await tasks.close()
    assert api.reads == 1


async def test_a_pool_that_is_deleted_while_its_policy_is_verified_is_reconciled_as_deleted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pool, tasks, removed = BusyPool(namespace="agents", name="default"), TaskRegistry(), asyncio.Event()

    def remove() -> None:
        if not removed.is_set():
            pool.remove()
            removed.set()

    pool.configure({"metadata": {"uid": "u", "generation": 1}, "spec": {"image": "i", "warm": {"min": 0}}})
    tasks.spawn(control(pool, NoEvents(on_verify=remove), tasks).run(), name="pool")
    await removed.wait()
    isolated = pool.isolation.verified
    pool.configure({"metadata": {"uid": "v", "generation": 1}, "spec": {"image": "i", "warm": {"min": 0}}})
    await asyncio.wait_for(pool.tenth.wait(), 30)
    await tasks.close()
    assert not isolated
    assert pool.isolation.verified
    assert "failed" not in caplog.text


async def test_a_pool_that_is_created_again_while_its_policy_is_verified_is_not_isolated_yet() -> None:
    pool, tasks = BusyPool(namespace="agents", name="default"), TaskRegistry()

    def create_again() -> None:
        pool.configure({"metadata": {"uid": "v", "generation": 1}, "spec": {"image": "i"}})

    pool.configure({"metadata": {"uid": "u", "generation": 1}, "spec": {"image": "i"}})
    policy = control(pool, NoEvents(on_verify=create_again), tasks).network_policy
    await policy.ensure(1)
    assert not pool.isolation.verified
    await policy.ensure(2)
    assert pool.isolation.verified


def control(pool: Pool, api: NoEvents, tasks: TaskRegistry, *, supervisors: Any = None) -> PoolController:
    return PoolController(
        pool=pool,
        services=PoolServices(
            api=cast(OperatorApi, api),
            supervisors=cast(SupervisorClient, supervisors),
            authenticator=PodAuthenticator(keys=SandboxKeys(SANDBOX_KEY)),
            tasks=tasks,
            metrics=Metrics(),
            release=ReleasePods(namespace="system"),
        ),
    )
