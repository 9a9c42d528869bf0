"""Each feature can be left out: the core runs executions without it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.world import World

from mcp_exec_operator import features, namespace


def test_each_folder_is_a_feature_of_its_name() -> None:
    folders = Path(features.__file__).parent.iterdir()
    assert {each.name for each in folders if (each / "__init__.py").exists()} == set(features.FEATURES)


@pytest.mark.parametrize("left_out", [*features.FEATURES, "all"])
async def test_the_operator_serves_without_a_feature(
    world: World, operating: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, left_out: str
) -> None:
    kept = {name: build for name, build in features.FEATURES.items() if left_out not in (name, "all")}
    monkeypatch.setattr(namespace, "FEATURES", kept)
    world.pool()
    async with operating():
        world.execution("hello")
        assert (await world.finished("hello"))["phase"] == "Succeeded"


async def test_a_process_without_a_namespace_serves_the_metrics_of_features(
    world: World, operating: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespace, "FEATURES", {})
    async with operating() as operator:
        assert "mcp_exec_rollout_phase" in {each.name for each in operator.metrics.registry.collect()}
