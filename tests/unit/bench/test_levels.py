"""Maximum size of search results by level: a larger level costs every conversation that uses it."""

import levels
import pytest
import queries

BUDGETS = {"name_only": 50, "with_description": 300, "full": 900}
"""Bytes a tool, on the mean of the catalogs."""


@pytest.fixture(scope="module")
def costs() -> dict[str, dict[str, float]]:
    return levels.costs(queries.read_catalogs())


def test_every_level_keeps_to_its_budget(costs: dict[str, dict[str, float]]) -> None:
    assert costs.keys() == BUDGETS.keys()
    for level, most in BUDGETS.items():
        assert most * 0.8 < costs[level]["bytes a tool"] <= most, (
            "a budget is at most a quarter above the measured size"
        )


def test_tokens_are_estimated_by_bytes(costs: dict[str, dict[str, float]]) -> None:
    for row in costs.values():
        assert row["tokens per 100 (estimate)"] == pytest.approx(row["bytes a tool"] * 25, rel=0.01)
        assert row["tools"] >= 100
