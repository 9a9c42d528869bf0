"""Usage as people read it: money by a price table, and estimates for the other mode."""

from typing import Any

import pytest
from pydantic import ValidationError

from mcp_exec_api.wire.usage import SandboxCosts, UsageGroup, UsageTotal
from mcp_exec_common.prices import PriceTable
from mcp_exec_common.usage import (
    MeasuredCalls,
    MeasuredExecutions,
    MeasuredTokens,
    MeasuredUsage,
    build_groups,
    sum_costs,
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

RESOURCES = PriceTable.model_validate({"currency": "EUR", "coreHour": 0.036, "gibHour": 0.0036})


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


def test_sandboxes_cost_their_processor_time_and_memory() -> None:
    rows = [executions(cpu_seconds=4.0, gib_seconds=50.0, unmeasured=1)]
    sandboxes = one(MeasuredUsage(executions=rows), prices=RESOURCES).sandboxes
    assert sandboxes is not None
    assert (sandboxes.gib_seconds, sandboxes.unmeasured, sandboxes.cost) == (50.0, 1, 0.00009)
    assert sandboxes.costs == SandboxCosts(processor=0.00004, memory=0.00005)


def test_a_sandbox_hour_is_added_to_processor_time_and_memory_in_the_pools_that_have_one() -> None:
    prices = RESOURCES.model_copy(update={"pools": PriceTable.model_validate(
        {"pools": [{"pool": "gpu", "sandboxHour": 3.6}]}).pools})  # fmt: skip
    rows = [executions(gib_seconds=50.0, pool_seconds={"gpu": 60.0, "default": 40.0})]
    sandboxes = one(MeasuredUsage(executions=rows), prices=prices).sandboxes
    assert sandboxes is not None
    assert sandboxes.costs == SandboxCosts(time=0.06, processor=0.00004, memory=0.00005)
    assert sandboxes.cost == 0.06009


def test_executions_without_figures_have_no_cost() -> None:
    sandboxes = one(MeasuredUsage(executions=[executions(unmeasured=3)]), prices=RESOURCES).sandboxes
    assert sandboxes is not None
    assert (sandboxes.gib_seconds, sandboxes.cost, sandboxes.costs) == (None, None, None)


def total(measured: MeasuredUsage, prices: PriceTable = PRICES) -> UsageTotal | None:
    return sum_costs(build_groups(measured, by="use-case", prices=prices), measured, prices=prices)


def test_the_total_has_the_cost_of_models_and_of_the_sandboxes_of_all_groups() -> None:
    rows = [
        executions(key="a", gib_seconds=50.0, pool_seconds={"gpu": 60.0}),
        executions(key="b", gib_seconds=None, unmeasured=3, pool_seconds={"gpu": 10.0, "default": 90.0}),
    ]
    prices = PriceTable.model_validate(
        {"coreHour": 0.036, "gibHour": 0.0036, "models": [each.to_api() for each in PRICES.models]}
    )
    found = total(MeasuredUsage(tokens=[tokens()], executions=rows), prices)
    assert found is not None
    assert found.sandboxes is not None
    assert (found.models, found.cost) == (4.503, 4.50313)
    assert (found.sandboxes.executions, found.sandboxes.failed, found.sandboxes.unmeasured) == (6, 2, 3)
    assert found.sandboxes.costs == SandboxCosts(processor=0.00008, memory=0.00005)


def test_the_total_is_unknown_if_a_part_of_it_is() -> None:
    found = total(MeasuredUsage(tokens=[tokens(model="local")], executions=[executions()]))
    assert found is not None
    assert found.sandboxes is not None
    assert (found.cost, found.models, found.sandboxes.cost) == (None, None, 0.01)


@pytest.mark.parametrize(
    ("measured", "prices"),
    [
        (MeasuredUsage(executions=[executions(gib_seconds=50.0)]), PriceTable()),
        (MeasuredUsage(executions=[executions()], is_complete=False), PRICES),
        (MeasuredUsage(calls=[calls()]), PRICES),
    ],
    ids=["no prices", "groups left out", "only calls"],
)
def test_there_is_no_total_without_amounts_of_all_groups(measured: MeasuredUsage, prices: PriceTable) -> None:
    assert total(measured, prices) is None


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
        {"coreHour": -1, "gibHour": 1},
        {"coreHour": 1e7, "gibHour": 1},
    ],
)
def test_a_wrong_price_table_is_refused(table: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PriceTable.model_validate(table)


@pytest.mark.parametrize("table", [{"coreHour": 0.03}, {"gibHour": 0.004}, {"coreHour": 0, "gibHour": 0.004}])
def test_processor_time_and_memory_have_prices_together(table: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"coreHour is \S+ and gibHour is \S+: give both a price, or neither"):
        PriceTable.model_validate(table)
