"""Usage as people read it: by group, with money, and with the estimate for the other mode."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from mcp_exec_api.wire.usage import CallUsage, ModeUsage, OtherMode, SandboxUsage, UsageGroup, UsageGrouping
from mcp_exec_common.usage.measured import MeasuredCalls, MeasuredExecutions, MeasuredTokens, MeasuredUsage
from mcp_exec_common.usage.prices import PriceTable, add_prices

CODE_METHOD: Final = "kept-less-code-1"
"""Direct calls instead of code: a model would also read what stayed in the sandbox, and would write no code."""
DIRECT_METHOD: Final = "mean-of-code-1"
"""Code instead of direct calls: as many tokens for a call as the group's executions have."""
_BYTES_PER_TOKEN: Final = 4
_SHOWN_DIGITS: Final = 6


def build_groups(measured: MeasuredUsage, *, by: UsageGrouping, prices: PriceTable) -> list[UsageGroup]:
    """Return the groups by key."""
    keys = {row.key for rows in (measured.tokens, measured.executions, measured.calls) for row in rows}
    return [
        _build_group(
            key,
            tokens=[row for row in measured.tokens if row.key == key],
            executions=next((row for row in measured.executions if row.key == key), None),
            calls=[row for row in measured.calls if row.key == key],
            prices=prices,
            is_estimated=by not in ("tool", "model"),
        )
        for key in sorted(keys)
    ]


def _build_group(
    key: str,
    *,
    tokens: Sequence[MeasuredTokens],
    executions: MeasuredExecutions | None,
    calls: Sequence[MeasuredCalls],
    prices: PriceTable,
    is_estimated: bool,
) -> UsageGroup:
    ordered = sorted(tokens, key=_identify)
    direct = next((each for each in calls if each.mode == "direct"), None)
    estimates = [_estimate_direct(executions), _estimate_code(direct, executions)] if is_estimated else []
    return UsageGroup(
        key=key,
        models=[_build_mode(list(rows), prices=prices) for _, rows in groupby(ordered, key=_identify)],
        sandboxes=None if executions is None else _build_sandboxes(executions, prices=prices),
        calls=[_build_calls(each) for each in sorted(calls, key=lambda row: row.mode)],
        estimates=[each for each in estimates if each is not None],
    )


def _identify(row: MeasuredTokens) -> tuple[str, str]:
    return row.mode, row.counted


def _build_mode(rows: Sequence[MeasuredTokens], *, prices: PriceTable) -> ModeUsage:
    costs = {row.model: prices.price_tokens(row.model, row) for row in rows}
    tasks, timed = _sum(row.reports for row in rows), _sum(row.timed for row in rows)
    succeeded, failed = _sum(row.succeeded for row in rows), _sum(row.failed for row in rows)
    used = {
        name: _sum(getattr(row, name) for row in rows)
        for name in ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    }
    return ModeUsage(
        mode=rows[0].mode,
        counted=rows[0].counted,
        tasks=tasks,
        turns=_sum(row.turns for row in rows),
        **used,
        definition_tokens=_sum(row.definition_tokens for row in rows),
        tokens_per_task=round(sum(used.values()) / max(tasks, 1), 1),
        success_share=round(succeeded / (succeeded + failed), 4) if succeeded + failed else None,
        mean_latency_ms=round(_sum(row.latency_ms for row in rows) / timed, 1) if timed else None,
        cost=_round(add_prices(costs.values())),
        unpriced_models=sorted(model for model, cost in costs.items() if cost is None)[:100],
    )


def _build_sandboxes(row: MeasuredExecutions, *, prices: PriceTable) -> SandboxUsage:
    return SandboxUsage(
        executions=row.executions,
        failed=row.failed,
        seconds=round(row.sandbox_seconds, 3),
        cpu_seconds=round(row.cpu_seconds, 3),
        cost=_round(prices.price_sandbox(row.sandbox_seconds)),
    )


def _build_calls(row: MeasuredCalls) -> CallUsage:
    return CallUsage(
        mode=row.mode,
        calls=row.calls,
        failed=row.failed,
        argument_tokens=row.argument_bytes // _BYTES_PER_TOKEN,
        result_tokens=row.result_bytes // _BYTES_PER_TOKEN,
    )


def _estimate_direct(executions: MeasuredExecutions | None) -> OtherMode | None:
    if executions is None or not executions.with_calls:
        return None
    tokens = executions.tokens_code + executions.tokens_returned
    return OtherMode(
        mode="code",
        other="direct",
        tokens=tokens,
        other_tokens=tokens + executions.tokens_saved - executions.tokens_lost,
        saved=executions.tokens_saved,
        lost=executions.tokens_lost,
        method=CODE_METHOD,
    )


def _estimate_code(direct: MeasuredCalls | None, executions: MeasuredExecutions | None) -> OtherMode | None:
    if direct is None:
        return None
    tokens = (direct.argument_bytes + direct.result_bytes) // _BYTES_PER_TOKEN
    other = None
    if executions is not None and executions.calls:
        other = round((executions.tokens_code + executions.tokens_returned) * direct.calls / executions.calls)
    return OtherMode(
        mode="direct",
        other="code",
        tokens=tokens,
        other_tokens=other,
        saved=None if other is None else max(other - tokens, 0),
        lost=None if other is None else max(tokens - other, 0),
        method=DIRECT_METHOD,
    )


def _sum(values: Iterable[int]) -> int:
    return sum(values)


def _round(amount: float | None) -> float | None:
    return None if amount is None else round(amount, _SHOWN_DIGITS)
