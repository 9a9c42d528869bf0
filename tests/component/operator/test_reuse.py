"""Pods that serve one owner again and again: never another owner, nothing twice, three writes an execution."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import generate_latest
from tests.component.operator.conftest import run_until_killed
from tests.support.api_server import Fault
from tests.support.supervisor import FakeSupervisor
from tests.support.world import CEX, PODS, SBP, World

from mcp_exec_api.constants import LABEL_OWNER, LABEL_STATE
from mcp_exec_api.files import Owner

Operating = Callable[..., Any]
OWNER = {"scope": "Owner"}
ONE: dict[str, Any] = {"maxPods": 1, "warm": {"min": 0}}
"""A pool whose next execution waits until the pod of the last one is idle or gone."""
ALICE = Owner(namespace="agents", caller="alice").digest
STEPS = [step if step % 5 == 1 else pytest.param(step, marks=pytest.mark.kills) for step in range(1, 88)]
"""More steps than three executions take; most of them only by `make kills`."""


def labels(world: World, pod: str) -> dict[str, str]:
    return dict(world.pods()[pod]["metadata"]["labels"])


def supervisor(world: World, pod: str) -> FakeSupervisor:
    return next(each for each in world.supervisors.values() if each.pod == pod)


async def owned(world: World, count: int) -> None:
    await world.until(lambda: world.pool_status().get("owned") == count)


async def run(world: World, name: str, code: str = "print 1", **options: Any) -> dict[str, Any]:
    """Run an execution to its end."""
    world.execution(name, code, **{"caller": "alice", **options})
    return dict(await world.finished(name))


async def test_an_owner_gets_its_pod_again_and_another_owner_does_not(world: World, operating: Operating) -> None:
    world.pool(reuse=OWNER, **ONE)
    async with operating():
        first = await run(world, "first")
        second = await run(world, "second")
        recorded = labels(world, first["podName"])[LABEL_OWNER]
        cleaned = len(supervisor(world, first["podName"]).recycled)
        third = await run(world, "third", caller="bob")
        fourth = await run(world, "fourth", user="alice", caller="")
        fifth = await run(world, "fifth", forged=True)
    assert (first["start"], second["start"], third["start"]) == ("Cold", "Reused", "Cold")
    assert second["podUid"] == first["podUid"]
    assert second["output"]["stdout"] == "1\n"
    assert f"pod {first['podName']} has served 1 executions of the same owner" in str(second["conditions"])
    assert len({first["podUid"], third["podUid"], fourth["podUid"], fifth["podUid"]}) == 4
    assert (recorded, cleaned) == (ALICE, 1)


async def test_a_pod_serves_nobody_once_and_an_account_again(world: World, operating: Operating) -> None:
    """What no caller is proven for may be anybody's: two such executions have nothing in common."""
    world.pool(reuse=OWNER, **ONE)
    async with operating():
        nobody = [await run(world, f"nobody-{number}", caller="", account="") for number in range(2)]
        ann, again = [await run(world, name, caller="", account="ann@example.com") for name in ("ann", "again")]
        eve = await run(world, "eve", caller="", account="eve@example.com")
    assert len({each["podUid"] for each in (*nobody, ann, eve)}) == 4
    assert (again["podUid"], again["start"]) == (ann["podUid"], "Reused")


async def test_the_pool_counts_pods_that_are_kept_and_executions_that_got_them(
    world: World, operating: Operating
) -> None:
    world.pool(reuse=OWNER)
    async with operating() as operator:
        await world.warm(1)
        await run(world, "first")
        await owned(world, 1)
        await world.warm(1)
        assert (await run(world, "second"))["start"] == "Reused"
        await world.until(lambda: world.pool_status().get("reuseRate") == 0.5)
        await owned(world, 1)
        assert world.pool_status()["warm"] == 1
        metrics = generate_latest(operator.metrics.registry).decode()
    assert 'mcp_exec_pool_pods{namespace="agents",pool="default",state="owned"} 1.0' in metrics
    assert 'mcp_exec_pod_recycles_total{namespace="agents",outcome="kept",pool="default"} 2.0' in metrics
    assert 'mcp_exec_pool_reuse_ratio{namespace="agents",pool="default"} 0.5' in metrics


async def test_each_further_execution_takes_two_writes_of_the_operator(world: World, operating: Operating) -> None:
    world.pool(reuse=OWNER, **ONE)
    async with operating() as operator:
        await run(world, "first")
        before = operator.writes()
        for number in range(3):
            assert (await run(world, f"e{number}"))["start"] == "Reused"
        after = operator.writes()
        # a long run takes no more: its pod has the label of its owner
        world.execution("long", "wait", caller="alice")
        await world.until(lambda: len(world.ran) == 5)
        await world.until(lambda: world.pool_status().get("busy") == 1)
        world.release.set()
        status = await world.finished("long")
        counted = operator.writes()
    new = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
    assert {name: number for name, number in new.items() if name != "pool-status"} == {"bind": 3, "finish": 3}
    assert before["pod-owner"] == counted["pod-owner"] == 1
    assert "pod-label" not in counted
    assert labels(world, status["podName"])[LABEL_STATE] == "owned"


async def test_the_owner_is_recorded_before_the_first_run(world: World, operating: Operating) -> None:
    world.pool(reuse=OWNER, **ONE)
    async with operating():
        world.execution("first", "wait", caller="alice")
        await world.until(lambda: world.ran)
        pod = world.status("first")["podName"]
        recorded = labels(world, pod).get(LABEL_OWNER)
        world.release.set()
        await world.finished("first")
    assert recorded == supervisor(world, pod).owner == ALICE


@pytest.mark.parametrize(
    ("code", "kept"),
    [
        ("raise UserError", True),
        ("raise ExitCode", True),
        ("raise OutOfMemory", False),
        ("raise StorageLimit", False),
        ("raise OutputLimit", False),
        ("raise ProcessLimit", False),
        ("raise RunnerDied", False),
        ("raise IsolationLost", False),
    ],
)
async def test_a_pod_ends_after_a_limit_and_not_after_an_error_of_the_code(
    world: World, operating: Operating, code: str, kept: bool
) -> None:
    world.pool(reuse=OWNER, **ONE)
    async with operating():
        first = await run(world, "first", code)
        second = await run(world, "second")
    assert (second["podUid"] == first["podUid"]) is kept


async def test_a_pod_ends_after_a_cancelled_run(world: World, operating: Operating) -> None:
    world.pool(reuse=OWNER, **ONE)
    async with operating():
        world.execution("first", "wait", caller="alice")
        await world.until(lambda: world.ran)
        world.merge(CEX, "first", {"spec": {"cancelRequested": True}})
        pod = (await world.finished("first"))["podName"]
        await world.until(lambda: pod not in world.pods())
        assert (await run(world, "second"))["podName"] != pod


async def test_a_pod_ends_after_its_last_use(world: World, operating: Operating) -> None:
    world.pool(reuse={**OWNER, "maxUses": 2}, **ONE)
    async with operating():
        statuses = [await run(world, f"e{number}") for number in range(3)]
    uids = [status["podUid"] for status in statuses]
    assert uids[0] == uids[1] != uids[2]
    assert statuses[0]["podName"] not in world.pods()


async def test_an_idle_pod_ends_after_its_time(world: World, operating: Operating) -> None:
    world.pool(reuse={**OWNER, "idleSeconds": 1}, **ONE)
    async with operating():
        pod = (await run(world, "first"))["podName"]
        await world.until(lambda: pod not in world.pods())
        await owned(world, 0)


async def test_a_pod_that_cannot_be_cleaned_is_deleted(world: World, operating: Operating) -> None:
    world.pool(reuse=OWNER, **ONE)
    async with operating() as operator:
        world.execution("first", "wait", caller="alice")
        await world.until(lambda: world.ran)
        pod = world.status("first")["podName"]
        supervisor(world, pod).not_clean = True
        world.release.set()
        await world.until(lambda: pod not in world.pods())
        second = await run(world, "second")
        metrics = generate_latest(operator.metrics.registry).decode()
    assert (second["phase"], second["start"]) == ("Succeeded", "Cold")
    assert 'mcp_exec_pod_recycles_total{namespace="agents",outcome="failed",pool="default"} 1.0' in metrics


async def test_a_pod_whose_owner_is_not_recorded_serves_one_execution(world: World, operating: Operating) -> None:
    world.pool(reuse=OWNER)
    async with operating():
        await world.warm(1)
        await world.sealed()
        (pod,) = world.pods()
        world.faults.append(Fault("PATCH", f"/pods/{pod}", 403))
        first = await run(world, "first")
    assert (first["phase"], first["podName"]) == ("Succeeded", pod)
    assert pod not in world.pods()


async def test_a_changed_template_ends_idle_pods_and_no_reuse_ends_them_too(world: World, operating: Operating) -> None:
    world.pool(reuse=OWNER, **ONE)
    async with operating():
        first = (await run(world, "first"))["podName"]
        await owned(world, 1)
        world.merge(SBP, "default", {"metadata": {"generation": 2}, "spec": {"image": "next"}})
        await world.until(lambda: first not in world.pods())
        second = await run(world, "second")
        assert second["start"] != "Reused"
        world.merge(SBP, "default", {"metadata": {"generation": 3}, "spec": {"reuse": {"scope": "Never"}}})
        await world.until(lambda: second["podName"] not in world.pods())


async def test_an_idle_pod_gives_its_place_to_another_owner_in_a_full_pool(world: World, operating: Operating) -> None:
    world.pool(reuse=OWNER, **ONE)
    async with operating():
        first = await run(world, "first")
        second = await run(world, "second", caller="bob")
    assert (first["phase"], second["phase"]) == ("Succeeded", "Succeeded")
    assert first["podUid"] != second["podUid"]
    assert first["podName"] not in world.pods()


async def test_an_owner_that_always_has_work_does_not_keep_the_pool_from_others(
    world: World, operating: Operating
) -> None:
    world.pool(reuse=OWNER, maxPods=2, warm={"min": 0})
    async with operating():
        for number in range(20):
            world.execution(f"a{number}", caller="alice")
        await world.until(lambda: world.ran)
        bob = world.execution("b", caller="bob")
        for number in range(20):
            assert (await world.finished(f"a{number}"))["phase"] == "Succeeded"
        assert (await world.finished("b"))["phase"] == "Succeeded"
        reused = [world.status(f"a{number}")["start"] for number in range(20)].count("Reused")
    assert bob in world.ran
    assert reused >= 10


async def test_an_idle_pod_on_a_cordoned_node_ends(world: World, operating: Operating) -> None:
    world.pool(reuse=OWNER)
    async with operating():
        first = (await run(world, "first"))["podName"]
        world.node = "node2"
        world.change_node("node1", cordoned=True)
        await world.until(lambda: first not in world.pods())
        assert (await run(world, "second"))["start"] != "Reused"


async def test_a_lost_idle_pod_is_replaced_and_fails_nothing(world: World, operating: Operating) -> None:
    world.pool(reuse=OWNER, **ONE)
    async with operating():
        first = (await run(world, "first"))["podName"]
        ended = {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 137}}}]}
        world.kill_pod(first, ended)
        await world.until(lambda: first not in world.pods())
        second = await run(world, "second")
    assert (second["phase"], second["podName"] != first) == ("Succeeded", True)


async def test_a_new_operator_gives_an_idle_pod_to_its_owner_only(world: World, operating: Operating) -> None:
    world.pool(reuse=OWNER)
    async with operating():
        first = await run(world, "first")
        await world.warm(1)
        await world.sealed()
    async with operating():
        await owned(world, 1)
        other = await run(world, "other", caller="bob")
        again = await run(world, "again")
    assert other["podUid"] != first["podUid"] == again["podUid"]
    assert again["start"] == "Reused"
    # it may have been used by the first operator's last breath: the second cleans it before it is idle
    assert len(supervisor(world, first["podName"]).recycled) >= 2


async def test_a_new_operator_counts_a_kept_pod_as_none_that_may_become_warm(
    world: World, operating: Operating
) -> None:
    world.pool(reuse=OWNER, **ONE)
    async with operating():
        first = await run(world, "first")
        await world.sealed()
    async with operating():
        await owned(world, 1)
        again = await run(world, "again")
    assert (again["start"], again["podUid"]) == ("Reused", first["podUid"])


async def test_a_new_operator_deletes_a_used_pod_whose_label_is_gone(world: World, operating: Operating) -> None:
    world.pool(reuse=OWNER)
    async with operating():
        first = (await run(world, "first"))["podName"]
        await world.sealed()
    metadata = world.pods()[first]["metadata"]
    del metadata["labels"][LABEL_OWNER]
    metadata["labels"][LABEL_STATE] = "warm"
    world.put(PODS, world.pods()[first])
    async with operating():
        await world.until(lambda: first not in world.pods())
        assert (await run(world, "second"))["start"] != "Reused"


async def test_a_label_that_others_set_gives_nobody_a_pod(world: World, operating: Operating) -> None:
    world.pool(reuse=OWNER)
    bob = Owner(namespace="agents", caller="bob").digest
    async with operating():
        first = (await run(world, "first"))["podName"]
        await world.warm(1)
        world.merge(PODS, first, {"metadata": {"labels": {LABEL_OWNER: bob}}})
        assert (await run(world, "second", caller="bob"))["podName"] != first
        await world.sealed()
    world.merge(PODS, first, {"metadata": {"labels": {LABEL_OWNER: bob}}})
    async with operating():
        third = await run(world, "third", caller="bob")
        await world.until(lambda: first not in world.pods())
    assert (third["phase"], third["podName"] != first) == ("Succeeded", True)


@pytest.mark.parametrize("step", STEPS)
async def test_a_kill_at_any_step_runs_nothing_twice_and_crosses_no_owner(
    world: World, operating: Operating, step: int
) -> None:
    world.pool(reuse=OWNER, maxPods=3)
    callers = {"a1": "alice", "b1": "bob", "a2": "alice", "b2": "bob", "a3": "alice"}
    uids = [world.execution(name, caller=callers[name]) for name in ("a1", "b1", "a2")]

    def over() -> bool:
        return all(world.status(name).get("finishedAt") for name in ("a1", "b1", "a2"))

    await run_until_killed(world, step, over, seal_after_seconds=0)
    uids += [world.execution(name, caller=callers[name]) for name in ("b2", "a3")]
    async with operating():
        statuses = {name: await world.finished(name) for name in callers}
    assert {status["phase"] for status in statuses.values()} == {"Succeeded"}
    assert {status["output"]["stdout"] for status in statuses.values()} == {"1\n"}
    assert sorted(world.ran) == sorted(uids)
    owners = defaultdict(set)
    for name, status in statuses.items():
        owners[status["podUid"]].add(callers[name])
    assert {len(found) for found in owners.values()} == {1}
