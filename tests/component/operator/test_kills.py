"""The operator is killed at each of its steps in turn, and another takes over: nothing is lost, nothing runs twice."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.component.operator.conftest import run_until_killed
from tests.support.supervisor import Steps
from tests.support.world import World

Operating = Callable[..., Any]
STEPS = 46
"""More steps than two executions take, so that the last kills hit an operator at rest."""


@pytest.mark.parametrize("step", range(1, STEPS + 1))
async def test_a_kill_at_any_step_loses_nothing_and_runs_nothing_twice(
    world: World, operating: Operating, step: int
) -> None:
    world.pool(warm={"min": 2})
    uids = [world.execution("first"), world.execution("second", "value 7")]
    await run_until_killed(world, step, lambda: _finished(world) and len(world.pods()) >= 2)
    async with operating():
        statuses = [await world.finished(name) for name in ("first", "second")]
        used = {status["podName"] for status in statuses}
        await world.until(lambda: len(world.pods()) == 2 and not used & set(world.pods()))
    assert [status["phase"] for status in statuses] == ["Succeeded", "Succeeded"]
    assert statuses[0]["output"]["stdout"] == "1\n"
    assert statuses[1]["output"]["result"] == 7
    assert sorted(world.ran) == sorted(uids)
    assert len(used) == 2


@pytest.mark.parametrize("step", range(1, 20))
async def test_two_kills_in_a_row_are_no_worse(world: World, operating: Operating, step: int) -> None:
    world.pool()
    uid = world.execution("only")
    await run_until_killed(world, step, lambda: _finished(world, "only"))
    world.steps = Steps()
    await run_until_killed(world, step, lambda: _finished(world, "only"))
    async with operating():
        status = await world.finished("only")
    assert (status["phase"], status["output"]["stdout"]) == ("Succeeded", "1\n")
    assert world.ran == [uid]


@pytest.mark.parametrize("step", range(3, 16))
async def test_a_sandbox_that_vanishes_with_the_operator_is_told_as_lost(
    world: World, operating: Operating, step: int
) -> None:
    world.pool()
    uid = world.execution("only")
    await run_until_killed(world, step, lambda: _finished(world, "only"))
    bound = world.status("only").get("podName") and not _finished(world, "only")
    ran = list(world.ran)
    if bound:
        world.remove("/api/v1/namespaces/agents/pods", world.status("only")["podName"])
    async with operating():
        status = await world.finished("only")
    if bound:
        assert (status["phase"], status["reason"], world.ran) == ("Failed", "SandboxLost", ran)
    else:
        assert (status["phase"], world.ran) == ("Succeeded", [uid])


def _finished(world: World, *names: str) -> bool:
    return all(world.status(name).get("finishedAt") for name in names or ("first", "second"))


@pytest.mark.parametrize("step", range(6, 22))
async def test_what_a_killed_operator_left_behind_is_ended_without_waiting_for_a_second_resync(
    world: World, operating: Operating, step: int
) -> None:
    world.pool()
    world.execution("only")
    await run_until_killed(world, step, lambda: _finished(world, "only"))
    async with operating(resync_seconds=3600.0):
        used = (await world.finished("only"))["podName"]
        await world.until(lambda: used not in world.pods() and len(world.pods()) == 1)
