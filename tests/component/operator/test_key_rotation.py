"""A rotation of the sandbox key while an operator works: nothing is lost, and what has a former key is replaced."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.component.operator.brokers import SERVICE, running_broker
from tests.component.operator.conftest import Operator
from tests.component.operator.test_shipped_skills import found, write_skill
from tests.component.operator.test_tool_servers import accepts, add, deployment, start_pod, workload
from tests.support.api_server import Fault
from tests.support.world import KEY, KEY_SECRET, NAMESPACE, SECRETS, World

from mcp_exec_api.meta import micro_time, now
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.supervisor.tokens import read_token_digest, supervisor_token, token_digest
from mcp_exec_operator.cluster.keys.rotation import ANNOTATION_ROTATE, ANNOTATION_SINCE
from mcp_exec_operator.features.skills.feature import SkillsFeature
from mcp_exec_operator.features.tools import controller

Operating = Callable[..., Any]


async def step(world: World, operator: Operator, *, minutes: float = 0, days: float = 0, rotate: bool = False) -> None:
    """Let the operator take the step that is due after so long."""
    annotations = {ANNOTATION_SINCE: micro_time(now() - timedelta(minutes=minutes, days=days))}
    annotations |= {ANNOTATION_ROTATE: "now"} if rotate else {}
    world.merge(SECRETS, KEY_SECRET, {"metadata": {"annotations": annotations}})
    manager = operator.manager
    await manager.keys.renew_proofs(manager.sandbox_keys)
    await manager.keys.check(manager.sandbox_keys)
    assert list(manager.sandbox_keys) == list(world.sandbox_keys())


def is_of(key: bytes, pod: Object) -> bool:
    token = supervisor_token(key=key, namespace=NAMESPACE, pod=pod["metadata"]["name"])
    return read_token_digest(pod) == token_digest(token)


async def test_runs_and_sessions_go_on_and_warm_pods_are_replaced(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 3})
    async with operating(create_sandbox_key=True) as operator:
        await world.warm(3)
        world.execution("before", session="s", caller="team-a")
        first = await world.finished("before")
        world.execution("long", "wait")
        await world.until(lambda: world.status("long").get("phase") == "Running")
        await world.warm(3)
        old = set(world.pods())
        await step(world, operator, rotate=True)
        world.execution("published")
        assert (await world.finished("published"))["phase"] == "Succeeded"
        await step(world, operator, minutes=5)
        new = world.sandbox_keys()[0]
        busy = {first["podName"], world.status("long")["podName"]}
        # one of them replaced the pod of `published`, and has the former key, too
        await world.until(
            lambda: {name for name, pod in world.pods().items() if is_of(KEY, pod)} == busy, what="new warm pods"
        )
        await world.warm(3)
        assert not (old - busy) & set(world.pods())
        assert all(is_of(new, pod) for name, pod in world.pods().items() if name not in busy)
        world.execution("during", session="s", caller="team-a")
        assert (await world.finished("during"))["podName"] == first["podName"]
        world.release.set()
        assert (await world.finished("long"))["phase"] == "Succeeded"
    # another leader, which has created none of the pods
    async with operating(create_sandbox_key=True) as operator:
        world.execution("later", session="s", caller="team-a")
        later = await world.finished("later")
        assert (later["start"], later["podName"]) == ("Session", first["podName"])
        await step(world, operator, days=8)
        assert world.sandbox_keys() == (new,)
        world.execution("after", caller="team-a")
        assert (await world.finished("after"))["phase"] == "Succeeded"


async def test_a_key_that_its_owner_rotates_step_by_step_loses_nothing_either(
    world: World, operating: Operating
) -> None:
    world.pool()
    async with operating(create_sandbox_key=False) as operator:
        await world.warm(1)
        for number, entries in enumerate(
            [
                {"key": KEY, "next-key": b"the new key"},
                {"key": b"the new key", "previous-key": KEY},
                {"key": b"the new key"},
            ]
        ):
            world.put_keys(entries)
            await operator.manager.keys.check(operator.manager.sandbox_keys)
            world.execution(f"run-{number}")
            assert (await world.finished(f"run-{number}"))["phase"] == "Succeeded"
            await world.until(lambda: any(is_of(world.sandbox_keys()[0], pod) for pod in world.pods().values()))
    assert operator.writes().get("release-key") is None


async def test_a_pod_of_a_key_that_is_gone_is_replaced_and_gets_no_execution(
    world: World, operating: Operating
) -> None:
    world.pool()
    async with operating() as operator:
        await world.warm(1)
        (old,) = world.pods()
        world.put_keys({"key": b"the new key"})
        await operator.manager.keys.check(operator.manager.sandbox_keys)
        await world.until(lambda: old not in world.pods())
        world.execution("after")
        after = await world.finished("after")
    assert after["phase"] == "Succeeded"
    assert after["podName"] != old


async def test_the_pod_of_a_stdio_server_stays_and_accepts_the_new_token_when_the_key_signs(
    world: World, operating: Operating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "_MIN_INTERVAL_SECONDS", 0.05)
    add(world)
    given = {"broker_service": SERVICE, "servers_image": "example.invalid/servers:1", "create_sandbox_key": True}
    async with running_broker(world):
        async with operating(**given) as operator:
            await world.until(lambda: workload(world))
            start_pod(world)
            await world.until(lambda: workload(world).get("ready") and accepts(world))
            before, stored = workload(world), deployment(world)["spec"]
            await step(world, operator, rotate=True)
            assert accepts(world)
            await step(world, operator, minutes=5)
            new = world.sandbox_keys()[0]
            await world.until(lambda: accepts(world, new))
        # another leader leaves the Deployment, too, and a new pod of it accepts the new token
        async with operating(**given):
            start_pod(world, "ts-git-2")
            await world.until(lambda: accepts(world, new, "ts-git-2"))
        assert deployment(world)["spec"] == stored
        assert workload(world) == before


async def test_a_standby_that_has_waited_through_rotations_takes_over_with_the_present_keys(
    world: World, operating: Operating, tmp_path: Path
) -> None:
    world.pool()
    write_skill(tmp_path, "report")
    world.put_keys({"key": b"the present key"})
    async with operating(skills_folder=str(tmp_path)):
        await world.until(lambda: found(world) == {"report-v1": "Approved"})
        world.execution("first", session="s")
        first = await world.finished("first")
    async with operating(skills_folder=str(tmp_path)) as standby:  # it has started with KEY
        await world.until(lambda: not standby.feature(SkillsFeature).shipped.pending)
        world.execution("second", session="s")
        assert (await world.finished("second"))["podName"] == first["podName"]
        assert standby.writes().get("skill", 0) == 0
        assert found(world) == {"report-v1": "Approved"}


async def test_an_operator_that_cannot_read_the_present_keys_does_not_lead(
    world: World, operating: Operating, tmp_path: Path
) -> None:
    world.pool()
    write_skill(tmp_path, "report")
    world.put_keys({"key": b"the present key"})
    async with operating(skills_folder=str(tmp_path)):
        await world.until(lambda: found(world) == {"report-v1": "Approved"})
        await world.warm(1)
    pods = set(world.pods())
    world.faults += [Fault("GET", f"/secrets/{KEY_SECRET}", 503) for _ in range(10)]
    with pytest.raises(ApiError):
        async with operating(skills_folder=str(tmp_path)):
            await world.until(lambda: len(found(world)) > 1 or set(world.pods()) != pods)
    assert found(world) == {"report-v1": "Approved"}
    assert set(world.pods()) == pods
