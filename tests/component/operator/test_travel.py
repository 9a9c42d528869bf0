"""How far an execution travels through the operator: only through what it uses."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.component.operator.brokers import SERVICE, running_broker
from tests.support.broker import FakeBroker
from tests.support.travel import travelling
from tests.support.world import World

Operating = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """One way to use the product."""

    spec: dict[str, Any]
    features: set[str]
    """The features whose code it enters."""
    functions: int
    """Functions that its task enters, at most."""
    changes: int
    """First calls of functions that lead into another module, at most."""


CASES = {
    "plain": Case({}, set(), 86, 52),
    "artifacts": Case({}, {"files"}, 96, 60),
    "tools": Case({"tools": ["github.*"]}, {"files", "tools"}, 128, 74),
    "session": Case({"session": "s"}, {"sessions"}, 134, 84),
}


@pytest.fixture
async def broker(world: World) -> AsyncIterator[FakeBroker]:
    async with running_broker(world) as made:
        yield made


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_an_execution_travels_only_through_what_it_uses(
    world: World, operating: Operating, broker: FakeBroker, case: Case
) -> None:
    world.pool(tools={"allow": ["github.*"], "deny": []})
    changes = {"broker_service": SERVICE} if "files" in case.features else {}  # the broker stores artifacts
    async with operating(resync_seconds=60, **changes):
        await world.warm(1)
        with travelling("mcp_exec_operator", "execution hello") as travel:
            world.execution("hello", **case.spec)
            status = await world.finished("hello")
            pod = status["podName"]
            await world.until(lambda: pod not in world.pods() or world.session_status("s").get("executions") == 1)
    assert status["phase"] == "Succeeded"
    inside = [module.split(".features.")[1] for module in travel.functions.values() if ".features." in module]
    assert {module.split(".")[0] for module in inside} == case.features
    counted = len(travel.functions), travel.changes
    assert (counted[0] <= case.functions, counted[1] <= case.changes) == (True, True), counted
