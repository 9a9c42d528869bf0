"""Usage: what models, sandboxes and tools used as the records have it, and as people read it."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Annotated, Final, TypeGuard, get_args

from pydantic import Field

from mcp_exec_api.meta import Model
from mcp_exec_api.wire.usage import (
    MAX_COMBINATIONS,
    CallUsage,
    ConversationCounts,
    ModeUsage,
    OtherMode,
    SandboxCosts,
    SandboxUsage,
    ToolCombination,
    UsageGroup,
    UsageGrouping,
    UsageTotal,
)
from mcp_exec_common.prices import PriceTable, add_prices


def is_usage_grouping(text: str) -> TypeGuard[UsageGrouping]:
    """Return whether usage can be grouped by this."""
    return text in get_args(UsageGrouping)


MAX_USAGE_ROWS = 2000
"""Most rows of each kind in an answer; the largest come first."""
MAX_USAGE_DAYS = 400
"""Longest time in days of a sum of usage."""

_Count = Annotated[int, Field(ge=0)]


class MeasuredTokens(Model):
    """Reports about one model in one mode of one group."""

    key: str
    """Group; empty for rows that name none."""
    mode: str
    """How the model called tools: direct, code or hybrid."""
    model: str
    """Name of the model."""
    counted: str
    """`provider` if the provider counted the tokens, `estimate` if somebody estimated them."""
    reports: _Count
    """Number of reports. One is about one task."""
    turns: _Count
    """Requests to the model."""
    input_tokens: _Count
    """Tokens that were read, without those from and for the cache."""
    output_tokens: _Count
    """Tokens that were written."""
    cache_read_tokens: _Count
    """Tokens that came from the provider's cache."""
    cache_write_tokens: _Count
    """Tokens that were written to the provider's cache."""
    definition_tokens: _Count
    """Tokens of tool definitions among those that were read, as far as reports say so."""
    succeeded: _Count
    """Tasks that succeeded."""
    failed: _Count
    """Tasks that failed. Others do not say."""
    timed: _Count
    """Reports that have a latency."""
    latency_ms: Annotated[int, Field(ge=0)]
    """Sum of their latencies in milliseconds."""


class MeasuredExecutions(Model):
    """Executions of one group."""

    key: str
    """Group; empty for rows that name none."""
    executions: _Count
    """Executions that ended."""
    failed: _Count
    """Those that did not succeed."""
    sandbox_seconds: Annotated[float, Field(ge=0)]
    """Seconds that they had sandboxes."""
    pool_seconds: dict[str, Annotated[float, Field(ge=0)]] = {}
    """Those of them by pool, without the executions that name none."""
    cpu_seconds: Annotated[float, Field(ge=0)]
    """CPU time of their code in seconds."""
    gib_seconds: Annotated[float | None, Field(ge=0)] = None
    """Highest memory of each execution times the seconds that it had its sandbox, over those that have processor time
    and memory. None if no execution has, or from an earlier broker."""
    unmeasured: _Count = 0
    """Executions that had a sandbox, but have no processor time or no memory."""
    with_calls: _Count
    """Executions that called tools and have estimated tokens. The numbers below are about them."""
    calls: _Count
    """Their tool calls."""
    tokens_code: _Count
    """Estimated tokens of their code."""
    tokens_returned: _Count
    """Estimated tokens of what models read of them."""
    tokens_kept: _Count
    """Estimated tokens of tool results that stayed in sandboxes."""
    tokens_saved: _Count
    """Sum over those executions that kept more tokens than their code has."""
    tokens_lost: _Count
    """Sum over those executions that kept fewer tokens than their code has."""


class MeasuredCalls(Model):
    """Tool calls of one group, made by code or directly."""

    key: str
    """Group; empty for rows that name none."""
    mode: str
    """`code` or `direct`."""
    calls: _Count
    """Number of calls."""
    failed: _Count
    """Calls that failed or were denied."""
    argument_bytes: _Count
    """Bytes of their arguments."""
    result_bytes: _Count
    """Bytes of their results."""


class MeasuredConversations(Model):
    """Conversations that records name."""

    total: _Count
    """Number of conversations."""
    with_code: _Count
    """Those that ran code."""


class MeasuredCombination(Model):
    """Tools that executions called together."""

    tools: Annotated[list[str], Field(max_length=64)]
    """Two tools or more, as SERVER.TOOL."""
    executions: _Count
    """Executions that called them."""


class MeasuredUsage(Model):
    """Sums of the records of a namespace over a time."""

    tokens: Annotated[list[MeasuredTokens], Field(max_length=MAX_USAGE_ROWS)] = []
    """Reports about models."""
    executions: Annotated[list[MeasuredExecutions], Field(max_length=MAX_USAGE_ROWS)] = []
    """Executions."""
    calls: Annotated[list[MeasuredCalls], Field(max_length=MAX_USAGE_ROWS)] = []
    """Tool calls."""
    conversations: MeasuredConversations | None = None
    """Conversations; None if usage is not grouped by them."""
    combinations: Annotated[list[MeasuredCombination], Field(max_length=MAX_COMBINATIONS)] = []
    """The most frequent combinations of tools, if usage is grouped by tool."""
    is_complete: bool = True
    """Whether no row was left out for their number."""


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


def sum_costs(groups: Sequence[UsageGroup], measured: MeasuredUsage, *, prices: PriceTable) -> UsageTotal | None:
    """Return what all groups cost, or None if groups were left out or nothing has a price."""
    modes = [mode for group in groups for mode in group.models]
    models = _round(add_prices(mode.cost for mode in modes)) if modes else None
    sandboxes = _build_sandboxes(_merge(measured.executions), prices=prices) if measured.executions else None
    money = None if sandboxes is None else sandboxes.cost
    if not measured.is_complete or (models is None and money is None):
        return None
    costs = ([models] if modes else []) + ([money] if sandboxes is not None else [])
    return UsageTotal(cost=_round(add_prices(costs)), models=models, sandboxes=sandboxes)


def _merge(rows: Sequence[MeasuredExecutions]) -> MeasuredExecutions:
    """Return the sums of all groups."""
    pools: dict[str, float] = {}
    for pool, seconds in (each for row in rows for each in row.pool_seconds.items()):
        pools[pool] = pools.get(pool, 0.0) + seconds
    memory_seconds = [row.gib_seconds for row in rows if row.gib_seconds is not None]
    return rows[0].model_copy(
        update={
            "key": "",
            "executions": _sum(row.executions for row in rows),
            "failed": _sum(row.failed for row in rows),
            "sandbox_seconds": sum(row.sandbox_seconds for row in rows),
            "pool_seconds": pools,
            "cpu_seconds": sum(row.cpu_seconds for row in rows),
            "gib_seconds": sum(memory_seconds) if memory_seconds else None,
            "unmeasured": _sum(row.unmeasured for row in rows),
        }
    )


def count_in_conversations(measured: MeasuredUsage) -> ConversationCounts | None:
    """Return the conversations and the share of those that used code, or None if none was counted."""
    counted = measured.conversations
    if counted is None or not counted.total:
        return None
    share = min(counted.with_code / counted.total, 1.0)
    return ConversationCounts(total=counted.total, with_code=counted.with_code, code_share=round(share, 4))


def list_combinations(measured: MeasuredUsage) -> list[ToolCombination]:
    """Return the combinations of tools as a report has them."""
    return [ToolCombination(tools=each.tools, executions=each.executions) for each in measured.combinations]


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
    costs = _price_sandboxes(row, prices=prices)
    memory_seconds = row.gib_seconds
    return SandboxUsage(
        executions=row.executions,
        failed=row.failed,
        seconds=round(row.sandbox_seconds, 3),
        cpu_seconds=round(row.cpu_seconds, 3),
        gib_seconds=None if memory_seconds is None else round(memory_seconds, 3),
        unmeasured=row.unmeasured,
        cost=None if costs is None else _round(add_prices(_list_parts(costs))),
        costs=costs,
    )


def _price_sandboxes(row: MeasuredExecutions, *, prices: PriceTable) -> SandboxCosts | None:
    """Return what sandboxes cost, or None without prices or without figures to multiply them with."""
    time = prices.price_sandboxes(row.sandbox_seconds, row.pool_seconds)
    if not prices.has_resources:
        return None if time is None else SandboxCosts(time=_round(time))
    if row.gib_seconds is None:
        return None
    return SandboxCosts(
        time=_round(time) if prices.has_sandboxes else None,
        processor=_round(prices.price_processor(row.cpu_seconds)),
        memory=_round(prices.price_memory(row.gib_seconds)),
    )


def _list_parts(costs: SandboxCosts) -> list[float]:
    return [each for each in (costs.time, costs.processor, costs.memory) if each is not None]


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
