"""What the operator does if a namespace stores more than it may."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.support.until import until
from tests.support.world import CEX, EVENTS, World

from mcp_exec_api.meta import micro_time, now
from mcp_exec_operator.core import stored

Operating = Callable[..., Any]
MIB = 2**20
WEEK = 7 * 24 * 3600


def keep(world: World, name: str, *, age: float, size: int, caller: str = "") -> None:
    """Add a finished execution that is to be kept for a week."""
    world.execution(name, caller=caller, ttlSecondsAfterFinished=WEEK)
    finished = micro_time(now() - timedelta(seconds=age))
    status = {"phase": "Succeeded", "reason": "", "finishedAt": finished, "storedBytes": size}
    world.merge(CEX, name, {"status": status})


def list_events(world: World) -> list[dict[str, Any]]:
    return [event for event in world.collections.get(EVENTS, {}).values() if event["reason"] == "DeletedEarly"]


def read_counts(world: World) -> list[int]:
    """Return how many deletions each Event counts."""
    return [int(event["message"].split()[1]) for event in list_events(world)]


async def test_one_keys_large_executions_make_room_long_before_their_ttl(
    world: World, operating: Operating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "_GATHER_SECONDS", 0.0)
    for number in range(40):
        keep(world, f"flood{number:02}", age=1000 - number, size=MIB, caller="loud")
    for number in range(3):
        keep(world, f"quiet{number}", age=5000, size=MIB, caller="quiet")
        keep(world, f"small{number}", age=5000, size=2000, caller="loud")
    world.pool()
    async with operating(max_stored_bytes=10 * MIB) as operator:
        await world.until(lambda: sum(read_counts(world)) == 37)
        count = operator.metrics.registry.get_sample_value(
            "mcp_exec_executions_deleted_early_total", {"namespace": "agents"}
        )
    kept = ["flood37", "flood38", "flood39", "quiet0", "quiet1", "quiet2", "small0", "small1", "small2"]
    assert sorted(world.collections[CEX]) == kept
    assert count == 37
    events = list_events(world)
    assert {(event["type"], event["involvedObject"]["kind"]) for event in events} == {("Warning", "CodeExecution")}
    assert all("maxStoredBytes" in event["message"] for event in events)


async def test_an_execution_that_has_just_ended_is_kept_however_much_is_stored(
    world: World, operating: Operating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "_GATHER_SECONDS", 0.0)
    world.pool()
    for number in range(4):
        keep(world, f"old{number}", age=1000, size=1000)
    async with operating(max_stored=1) as operator:
        world.execution("fresh")
        await world.finished("fresh")
        await world.until(lambda: set(world.collections[CEX]) == {"fresh"})
        # it is more than the budget, and stays
        await until(lambda: operator.part.ttl.budget.is_over)
    assert set(world.collections[CEX]) == {"fresh"}


async def test_a_status_has_the_bytes_of_its_object(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        world.execution("counted", "print 1" + " " * 50_000)
        status = await world.finished("counted")
    size = len(json.dumps(world.collections[CEX]["counted"]))
    assert size <= status["storedBytes"] + 64
    assert status["storedBytes"] <= 1.1 * size
