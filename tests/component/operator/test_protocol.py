"""Pools whose image is of another release than the operator."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.world import World

from mcp_exec_tools.protocol import PROTOCOLS

Operating = Callable[..., Any]
NEWEST = PROTOCOLS[-1]


@pytest.mark.parametrize("named", [None, [NEWEST - 1], [NEWEST - 2, NEWEST - 1]])
async def test_an_image_of_the_release_before_runs_code_and_its_pool_says_so(
    world: World, operating: Operating, named: object
) -> None:
    world.protocols = named
    world.pool()
    async with operating():
        world.execution("runs", code="print old")
        assert (await world.finished("runs"))["output"]["stdout"] == "old\n"
        await world.until(lambda: world.condition("Current").get("reason") == "EarlierProtocol")
    current = world.condition("Current")
    assert current["status"] == "True"
    assert f"speaks version {NEWEST - 1} of the protocol" in current["message"]


@pytest.mark.parametrize("named", [list(PROTOCOLS), [*PROTOCOLS, NEWEST + 1], [NEWEST, NEWEST + 1]])
async def test_an_image_of_this_release_or_the_next_one_is_current(
    world: World, operating: Operating, named: object
) -> None:
    world.protocols = named
    world.pool()
    async with operating():
        await world.warm(1)
        await world.until(lambda: world.condition("Current").get("reason") == "Current")


@pytest.mark.parametrize(
    ("named", "versions"),
    [
        ([NEWEST + 1, NEWEST + 2], f"{NEWEST + 1}, {NEWEST + 2}"),
        ([NEWEST + 7] * 1000, ", ".join([str(NEWEST + 7)] * 16)),
        ([10**300], "none that is known"),
        ([], "none that is known"),
        ([True, "1", [1], None], "none that is known"),
        ("1", "none that is known"),
    ],
)
async def test_an_image_of_a_release_that_is_too_far_away_runs_nothing_and_its_pool_has_both_versions(
    world: World, operating: Operating, named: object, versions: str
) -> None:
    world.protocols = named
    world.pool()
    async with operating(bind_timeout_seconds=0.8):
        world.execution("waits")
        await world.until(lambda: world.condition("Ready").get("reason") == "ProtocolMismatch")
        status = await world.finished("waits")
    assert (status["phase"], status["reason"]) == ("Failed", "ProtocolMismatch")
    assert world.ran == []
    message = world.condition("Ready")["message"]
    assert f"has the versions {versions}, and that of the operator 1, 2" in message
