"""Each feature can be left out: the core runs executions without it."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.world import World

from mcp_exec_operator import namespace
from mcp_exec_operator.core.feature import Feature, FeatureContext

Build = Callable[[FeatureContext], Feature]


@pytest.mark.parametrize("left_out", namespace.FEATURES, ids=lambda build: build.__name__)
async def test_the_operator_serves_without_a_feature(
    world: World, operating: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, left_out: Build
) -> None:
    monkeypatch.setattr(namespace, "FEATURES", tuple(each for each in namespace.FEATURES if each is not left_out))
    world.pool()
    async with operating():
        world.execution("hello")
        assert (await world.finished("hello"))["phase"] == "Succeeded"


async def test_the_operator_serves_without_any_feature(
    world: World, operating: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespace, "FEATURES", ())
    world.pool()
    async with operating():
        world.execution("hello")
        assert (await world.finished("hello"))["phase"] == "Succeeded"
