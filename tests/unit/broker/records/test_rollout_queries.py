"""What the arms of a rollout measured, from its outcomes, on SQLite."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mcp_exec_broker.features.records.queries import measure_rollout
from mcp_exec_broker.features.records.store import RecordStore

ROLLOUT = {"namespace": "agents", "rollout": "code-mode", "rollout_uid": "r-1"}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[RecordStore]:
    async with RecordStore.open(tmp_path / "records.sqlite") as opened:
        yield opened


def build_outcome(number: int, arm: str = "code", **measured: Any) -> dict[str, Any]:
    return ROLLOUT | {"id": f"{arm}-{number}", "unit": f"unit-{number}", "arm": arm, "at": number} | measured


async def test_each_arm_has_its_share_means_and_percentile(store: RecordStore) -> None:
    rows = [
        build_outcome(number, success=number % 10 != 0, latency_ms=number, tokens=2**52, cost=0.5, rating=4)
        for number in range(1, 101)
    ]
    await store.add("outcomes", [*rows, build_outcome(1, "direct", success=False)])
    code, direct = (await measure_rollout(store, namespace="agents", uid="r-1", since=0)).arms
    assert (code.name, code.units, code.outcomes, code.failures) == ("code", 100, 100, 10)
    assert code.error_rate is not None
    assert (code.error_rate.value, code.error_rate.samples) == (0.1, 100)
    assert code.p95_latency_ms is not None
    assert code.p95_latency_ms.value == 95
    assert [measure and measure.value for measure in (code.tokens, code.cost, code.rating)] == [2.0**52, 0.5, 4.0]
    assert (direct.failures, direct.p95_latency_ms, direct.cost, direct.rating) == (1, None, None, None)


async def test_a_unit_counts_once_however_many_outcomes_it_has(store: RecordStore) -> None:
    rows = [build_outcome(number, success=True, latency_ms=100, cost=1, rating=5) for number in range(1, 31)]
    one = {"unit": "unit-1", "success": False, "latency_ms": 10**9, "cost": 10**6, "rating": 1}
    steered = [build_outcome(number) | one for number in range(100, 1000)]
    await store.add("outcomes", [*rows, *steered])
    [arm] = (await measure_rollout(store, namespace="agents", uid="r-1", since=0)).arms
    assert (arm.units, arm.outcomes, arm.failures) == (30, 930, 900)
    assert arm.error_rate is not None
    assert arm.error_rate.samples == 30
    assert arm.error_rate.value == pytest.approx(900 / 901 / 30)
    assert arm.rating is not None
    assert (arm.rating.samples, round(arm.rating.value, 1)) == (30, 4.9)
    assert arm.p95_latency_ms is not None
    assert (arm.p95_latency_ms.samples, arm.p95_latency_ms.value) == (30, 100)


async def test_a_unit_counts_with_the_mean_of_its_outcomes_and_its_newest_latency(store: RecordStore) -> None:
    same = {"unit": "unit-1"}
    rows = [
        build_outcome(1, success=True, latency_ms=10, cost=1) | same,
        build_outcome(2, success=False, latency_ms=30, cost=2) | same,
        build_outcome(3, success=None, latency_ms=None, cost=6) | same,
    ]
    await store.add("outcomes", rows)
    [arm] = (await measure_rollout(store, namespace="agents", uid="r-1", since=0)).arms
    measures = (arm.error_rate, arm.cost, arm.p95_latency_ms)
    values = [measure and (measure.value, measure.samples) for measure in measures]
    assert values == [(0.5, 1), (3.0, 1), (30, 1)]


async def test_an_outcome_that_does_not_say_whether_it_succeeded_counts_for_no_share(store: RecordStore) -> None:
    await store.add("outcomes", [build_outcome(1, rating=1), build_outcome(2, success=True)])
    [arm] = (await measure_rollout(store, namespace="agents", uid="r-1", since=0)).arms
    assert arm.error_rate is not None
    assert (arm.outcomes, arm.error_rate.samples, arm.error_rate.value) == (2, 1, 0.0)


async def test_only_outcomes_of_the_window_and_of_the_rollout_count(store: RecordStore) -> None:
    foreign = [build_outcome(50) | {"rollout_uid": "r-2", "id": "a"}, build_outcome(50) | {"namespace": "b"}]
    await store.add("outcomes", [build_outcome(10, rating=1), build_outcome(20, rating=5), *foreign])
    [arm] = (await measure_rollout(store, namespace="agents", uid="r-1", since=15)).arms
    assert arm.rating is not None
    assert (arm.outcomes, arm.rating.value, arm.rating.low) == (1, 5.0, None)


async def test_a_rollout_without_outcomes_has_no_arms(store: RecordStore) -> None:
    assert (await measure_rollout(store, namespace="agents", uid="r-1", since=0)).arms == []
