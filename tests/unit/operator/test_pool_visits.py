"""How many pods a pool looks at: an event of one pod touches one pod, whatever the size of the pool."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.unit.operator.test_pod_cache import item
from tests.unit.operator.test_pool import plan
from tests.unit.operator.test_pool_controller import NoEvents, control

from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_operator.core.pods.pod import Pod, PodState
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.core.pools.reviews import PodAction

PODS = 300
POOL: Any = {"metadata": {"uid": "u", "generation": 1}, "spec": {"image": "i", "warm": {"min": PODS}, "maxPods": 900}}
OWNERS = [{"uid": "u", "blockOwnerDeletion": False}, {"uid": "policy", "blockOwnerDeletion": True}]


def observe(made: Pool, name: str, **state: Any) -> Pod:
    """Let a watch deliver a pod that the operator created and sealed."""
    body = item(name, template=made.shape.template_hash, **state)
    body["metadata"]["ownerReferences"] = OWNERS
    pod = made.pods.observe(body, now=made.clock())
    pod.trust.verified = pod.trust.sealed = True
    return pod


def fill(made: Pool) -> Pool:
    """Give a pool as many warm pods as it should have."""
    made.configure(POOL)
    made.isolation.verify("policy")
    for number in range(PODS):
        made.mark_ready(observe(made, f"pod-{number}").name)
    return made


@pytest.fixture
def made() -> Pool:
    """A pool that has reviewed all its pods."""
    found = fill(Pool(namespace="agents", name="default", clock=lambda: 100.0))
    found.review(100.0)
    plan(found, 100.0)
    return found


@contextmanager
def visits() -> Iterator[set[str]]:
    """Collect the names of all pods that are read or changed in the block."""
    seen: set[str] = set()

    def read(pod: Pod, attribute: str) -> Any:
        seen.add(object.__getattribute__(pod, "name"))
        return object.__getattribute__(pod, attribute)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pod, "__getattribute__", read)
        yield seen


def wake_up(made: Pool, now: float) -> None:
    """Decide all that a wake-up decides."""
    made.review(now)
    plan(made, now)
    made.supply.update_lacking(made.counts, now)
    made.explain_shortage()
    assert made.counts.total >= PODS


def test_a_wake_up_without_due_pods_touches_none(made: Pool) -> None:
    with visits() as seen:
        wake_up(made, 100.0)
        wake_up(made, 10_000.0)
    assert seen == set()


@pytest.mark.parametrize("state", [{}, {"ready": "False"}, {"phase": "Failed"}, {"deleted": True}])
def test_an_event_of_one_pod_touches_one(made: Pool, state: dict[str, Any]) -> None:
    with visits() as seen:
        observe(made, "pod-7", **state)
        wake_up(made, 101.0)
    assert seen == {"pod-7"}


def test_the_start_of_a_pod_touches_one(made: Pool) -> None:
    with visits() as seen:
        made.pods.add_expectation("new", template=made.shape.template_hash, now=101.0)
        made.pods.confirm_created("new", uid="uid-new", now=101.0)
        for state in ({"phase": "Pending", "node": ""}, {"phase": "Pending"}, {}):
            observe(made, "new", **state)
            wake_up(made, 102.0)
        made.mark_ready("new")
        made.pods.forget("new")
        wake_up(made, 103.0)
    assert seen <= {"new", "pod-0"}  # while one is too many, the longest warm one is to be deleted


def test_a_pod_is_taken_and_given_back_without_a_look_at_others(made: Pool) -> None:
    with visits() as seen:
        pod = made.take()
        assert pod is not None
        made.release(pod)
        assert made.take() is pod
        made.pods.retire(pod)
        wake_up(made, 101.0)
    assert seen == {pod.name}


def test_a_node_touches_its_own_pods(made: Pool) -> None:
    observe(made, "far", node="n2")
    made.review(100.0)
    made.nodes.observe({"metadata": {"name": "n2"}, "spec": {"unschedulable": True}}, deleted=False)
    with visits() as seen:
        made.recheck_node("n2")
        made.review(101.0)
    assert seen == {"far"}


def test_time_makes_due_only_the_pod_whose_time_has_come(made: Pool) -> None:
    observe(made, "slow", phase="Pending")
    made.review(100.0)
    with visits() as seen:
        [early, late] = [made.review(100.0 + seconds) for seconds in (119, 121)]
    assert seen == {"slow"}
    assert [each.actions for each in early] == [(PodAction.READ_EVENTS,)]
    assert [each.actions for each in late] == [(PodAction.FAIL,)]


def test_a_change_of_the_spec_reviews_all_pods(made: Pool) -> None:
    changed = {"metadata": {"uid": "u", "generation": 2}, "spec": {**POOL["spec"], "image": "other"}}
    with visits() as seen:
        made.configure(changed)
        made.review(101.0)
    assert len(seen) == PODS
    assert len(made.reviews.list_outdated()) == PODS


class Silent:
    """Supervisors that do not answer."""

    def get_connection(self, **_: Any) -> "Silent":
        return self

    async def get_libraries(self, *, timeout_seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await asyncio.Event().wait()


@dataclass(kw_only=True, eq=False)
class ReconciledPool(Pool):
    """A pool that shows the end of each reconcile."""

    reconciled: asyncio.Event = field(default_factory=asyncio.Event)

    def reconsider_after(self) -> float | None:
        self.reconciled.set()
        return super().reconsider_after()


async def test_a_reconcile_after_an_event_touches_one_pod() -> None:
    pool, tasks = ReconciledPool(namespace="agents", name="default"), TaskRegistry()
    fill(pool)
    tasks.spawn(control(pool, NoEvents(), tasks, supervisors=Silent()).run(), name="pool")
    for name in ("", "", "pod-7"):  # the first reconciles review all pods and choose one whose libraries are read
        with visits() as seen:
            pool.reconciled.clear()
            if name:
                observe(pool, name)
            pool.changed()
            await asyncio.wait_for(pool.reconciled.wait(), 30)
    assert seen == {"pod-7"}
    assert pool.pods.get("pod-7") in pool.pods.all(PodState.WARM)
    await tasks.close()
