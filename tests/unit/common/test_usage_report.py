"""Usage as people read it: money by a price table, and estimates for the other mode."""

from typing import Any

import pytest
from pydantic import ValidationError

from mcp_exec_api.wire.usage import UsageGroup
from mcp_exec_common.usage import (
    MeasuredCalls,
    MeasuredExecutions,
    MeasuredTokens,
    MeasuredUsage,
    PriceTable,
    build_groups,
)

PRICES = PriceTable.model_validate(
    {
        "currency": "EUR",
        "models": [
            {"model": "claude-sonnet-*", "input": 3, "output": 15, "cacheRead": 0.3, "cacheWrite": 3.75},
            {"model": "claude-*", "input": 1, "output": 5, "cacheRead": 0.1, "cacheWrite": 1.25},
        ],
        "sandboxHour": 0.36,
    }
)


def tokens(**changes: Any) -> MeasuredTokens:
    values = {
        "key": "filtering",
        "mode": "code",
        "model": "claude-sonnet-4-5",
        "counted": "provider",
        "reports": 2,
        "turns": 6,
        "input_tokens": 1_000_000,
        "output_tokens": 100_000,
        "cache_read_tokens": 10_000,
        "cache_write_tokens": 0,
        "definition_tokens": 0,
        "succeeded": 1,
        "failed": 1,
        "timed": 1,
        "latency_ms": 900,
    }
    return MeasuredTokens(**(values | changes))


def executions(**changes: Any) -> MeasuredExecutions:
    values = {
        "key": "filtering",
        "executions": 3,
        "failed": 1,
        "sandbox_seconds": 100.0,
        "cpu_seconds": 4.0,
        "with_calls": 2,
        "calls": 4,
        "tokens_code": 80,
        "tokens_returned": 20,
        "tokens_kept": 1010,
        "tokens_saved": 960,
        "tokens_lost": 30,
    }
    return MeasuredExecutions(**(values | changes))


def calls(**changes: Any) -> MeasuredCalls:
    values = {"key": "filtering", "mode": "direct", "calls": 2, "failed": 0, "argument_bytes": 40, "result_bytes": 400}
    return MeasuredCalls(**(values | changes))


def one(measured: MeasuredUsage, **options: Any) -> UsageGroup:
    [group] = build_groups(measured, **({"by": "use-case", "prices": PRICES} | options))
    return group


def test_reported_tokens_have_the_price_of_the_first_pattern_that_matches() -> None:
    [mode] = one(MeasuredUsage(tokens=[tokens(), tokens(model="claude-haiku-4", reports=1)])).models
    assert mode.cost == pytest.approx(3 + 1.5 + 0.003 + 1 + 0.5 + 0.001)
    assert (mode.tasks, mode.turns, mode.input_tokens, mode.unpriced_models) == (3, 12, 2_000_000, [])
    assert (mode.success_share, mode.mean_latency_ms) == (0.5, 900.0)
    assert mode.tokens_per_task == pytest.approx(2 * 1_110_000 / 3, abs=0.1)


def test_the_cost_of_a_model_without_a_price_is_unknown_and_not_nothing() -> None:
    [mode] = one(MeasuredUsage(tokens=[tokens(), tokens(model="local")])).models
    assert (mode.cost, mode.unpriced_models) == (None, ["local"])
    group = one(MeasuredUsage(executions=[executions()]), prices=PriceTable())
    assert group.sandboxes is not None
    assert group.sandboxes.cost is None


def test_estimated_tokens_are_never_added_to_counted_ones() -> None:
    rows = [tokens(), tokens(counted="estimate"), tokens(mode="direct")]
    found = one(MeasuredUsage(tokens=rows)).models
    assert [(each.mode, each.counted, each.tasks) for each in found] == [
        ("code", "estimate", 2),
        ("code", "provider", 2),
        ("direct", "provider", 2),
    ]


def test_sandboxes_cost_by_their_seconds() -> None:
    sandboxes = one(MeasuredUsage(executions=[executions()])).sandboxes
    assert sandboxes is not None
    assert (sandboxes.seconds, sandboxes.cost) == (100.0, 0.01)


def test_losses_of_code_are_shown_like_its_savings() -> None:
    [estimate] = one(MeasuredUsage(executions=[executions()])).estimates
    assert (estimate.mode, estimate.other, estimate.tokens, estimate.other_tokens) == ("code", "direct", 100, 1030)
    assert (estimate.saved, estimate.lost, estimate.method) == (960, 30, "kept-less-code-1")
    [loss] = one(MeasuredUsage(executions=[executions(tokens_saved=0, tokens_lost=70)])).estimates
    assert (loss.other_tokens, loss.saved, loss.lost) == (30, 0, 70)


def test_direct_calls_are_compared_with_what_a_call_of_code_took_in_the_same_group() -> None:
    by_code, direct = one(MeasuredUsage(executions=[executions()], calls=[calls()])).estimates
    assert by_code.mode == "code"
    assert (direct.mode, direct.other, direct.tokens, direct.other_tokens) == ("direct", "code", 110, 50)
    assert (direct.saved, direct.lost, direct.method) == (0, 60, "mean-of-code-1")


def test_direct_calls_of_a_group_without_code_have_no_estimate() -> None:
    [direct] = one(MeasuredUsage(calls=[calls()])).estimates
    assert (direct.tokens, direct.other_tokens, direct.saved, direct.lost) == (110, None, None, None)


def test_code_that_called_no_tool_saves_nothing() -> None:
    assert one(MeasuredUsage(executions=[executions(with_calls=0, calls=0)])).estimates == []


def test_a_tool_has_calls_and_no_estimate_of_whole_executions() -> None:
    group = one(MeasuredUsage(calls=[calls(key="sheets.read")]), by="tool")
    assert (group.key, group.models, group.estimates) == ("sheets.read", [], [])
    assert [(each.argument_tokens, each.result_tokens) for each in group.calls] == [(10, 100)]


@pytest.mark.parametrize(
    ("hour", "pools", "seconds", "cost"),
    [
        (0.36, [], {"gpu": 100.0}, 0.01),
        (0.36, [{"pool": "gpu", "sandboxHour": 3.6}], {"gpu": 60.0, "default": 40.0}, 0.064),
        (0.36, [{"pool": "gpu-*", "sandboxHour": 3.6}, {"pool": "gpu-b", "sandboxHour": 9}], {"gpu-b": 100.0}, 0.1),
        (0.0, [{"pool": "gpu", "sandboxHour": 3.6}], {"gpu": 100.0}, 0.1),
        (0.0, [{"pool": "gpu", "sandboxHour": 3.6}], {"gpu": 60.0, "default": 40.0}, None),
        (0.36, [{"pool": "default", "sandboxHour": 0}], {"default": 100.0}, 0.0),
        (0.36, [{"pool": "gpu", "sandboxHour": 3.6}], {"gpu": 60.0}, 0.064),  # 40 s of executions without a pool
        (0.36, [{"pool": "gpu", "sandboxHour": 3.6}], {}, 0.01),  # an earlier broker names no pools
    ],
)
def test_sandboxes_cost_what_their_pool_costs(
    hour: float, pools: list[dict[str, Any]], seconds: dict[str, float], cost: float | None
) -> None:
    prices = PriceTable.model_validate({"sandboxHour": hour, "pools": pools})
    group = one(MeasuredUsage(executions=[executions(pool_seconds=seconds)]), prices=prices)
    assert group.sandboxes is not None
    assert group.sandboxes.cost == cost


def test_groups_are_sorted_and_have_all_their_parts() -> None:
    measured = MeasuredUsage(tokens=[tokens(key="b")], executions=[executions(key="a")], calls=[calls(key="")])
    assert [group.key for group in build_groups(measured, by="use-case", prices=PRICES)] == ["", "a", "b"]


@pytest.mark.parametrize(
    "table",
    [
        {"currency": "euro"},
        {"models": [{"model": "m", "input": -1, "output": 0, "cacheRead": 0, "cacheWrite": 0}]},
        {"models": [{"model": "m", "input": 1}]},
        {"sandboxHour": "nan"},
        {"sandboxMinute": 1},
        {"pools": [{"pool": "gpu"}]},
        {"pools": [{"pool": "gpu", "sandboxHour": -1}]},
    ],
)
def test_a_wrong_price_table_is_refused(table: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PriceTable.model_validate(table)
