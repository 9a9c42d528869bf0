"""Usage: what models, sandboxes and tools used as the records have it, with prices, and as people read it."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Annotated, Final, Protocol, TypeGuard, get_args

from pydantic import Field

from mcp_exec_api.meta import Model
from mcp_exec_api.wire.usage import (
    MAX_COMBINATIONS,
    CallUsage,
    ConversationCounts,
    ModeUsage,
    OtherMode,
    SandboxUsage,
    ToolCombination,
    UsageGroup,
    UsageGrouping,
)


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


_MILLION: Final = 1_000_000
_SECONDS_PER_HOUR: Final = 3600
_ROUNDING_SECONDS: Final = 0.001
"""How far the sums of seconds by pool may be from the sum of all."""

Amount = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
"""Money in the table's currency."""


class Tokens(Protocol):
    """Numbers of tokens by kind."""

    @property
    def input_tokens(self) -> int:
        """Tokens that were read, without those from and for the cache."""

    @property
    def output_tokens(self) -> int:
        """Tokens that were written."""

    @property
    def cache_read_tokens(self) -> int:
        """Tokens that came from the provider's cache."""

    @property
    def cache_write_tokens(self) -> int:
        """Tokens that were written to the provider's cache."""


class ModelPrice(Model):
    """Price of a million tokens of each kind, of the models whose names match a pattern."""

    model: Annotated[str, Field(min_length=1, max_length=128)]
    """Name of a model, or a pattern such as `claude-sonnet-*`."""
    input: Amount
    """Tokens that were read, without those from and for the cache."""
    output: Amount
    """Tokens that were written."""
    cache_read: Amount
    """Tokens that came from the provider's cache."""
    cache_write: Amount
    """Tokens that were written to the provider's cache."""

    def calculate(self, tokens: Tokens) -> float:
        """Return the price of these tokens."""
        total = (
            self.input * tokens.input_tokens
            + self.output * tokens.output_tokens
            + self.cache_read * tokens.cache_read_tokens
            + self.cache_write * tokens.cache_write_tokens
        )
        return total / _MILLION


class PoolPrice(Model):
    """Price of the sandboxes of pools whose names match a pattern."""

    pool: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of a pool, or a pattern such as `gpu-*`."""
    sandbox_hour: Amount
    """Price of one of its sandboxes for an hour."""


class PriceTable(Model):
    """Prices in one currency. What has no price costs an unknown amount, not nothing."""

    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] = "USD"
    """Currency by its code of ISO 4217."""
    models: Annotated[list[ModelPrice], Field(max_length=100)] = []
    """Prices of models. The first one whose pattern matches a model's name counts."""
    sandbox_hour: Amount = 0.0
    """Price of one sandbox for an hour, in pools without another price; 0 means that it is unknown."""
    pools: Annotated[list[PoolPrice], Field(max_length=100)] = []
    """Prices of the sandboxes of single pools. The first one whose pattern matches a pool's name counts."""

    def price_tokens(self, model: str, tokens: Tokens) -> float | None:
        """Return the price of a model's tokens; None if the model has none."""
        price = next((each for each in self.models if fnmatchcase(model, each.model)), None)
        return None if price is None else price.calculate(tokens)

    def price_sandboxes(self, seconds: float, by_pool: Mapping[str, float]) -> float | None:
        """Return the price of sandboxes for these seconds, or None. `by_pool` has those of known pools."""
        costs = [self._price_pool(pool, each) for pool, each in by_pool.items()]
        rest = seconds - sum(by_pool.values())
        if not by_pool or rest > _ROUNDING_SECONDS:
            costs.append(self._price_any(rest))
        return add_prices(costs)

    def _price_pool(self, pool: str, seconds: float) -> float | None:
        price = next((each for each in self.pools if fnmatchcase(pool, each.pool)), None)
        return self._price_any(seconds) if price is None else price.sandbox_hour * seconds / _SECONDS_PER_HOUR

    def _price_any(self, seconds: float) -> float | None:
        return None if self.sandbox_hour == 0 else self.sandbox_hour * seconds / _SECONDS_PER_HOUR


def add_prices(prices: Iterable[float | None]) -> float | None:
    """Return the sum; None if one of them is unknown."""
    known = list(prices)
    return None if None in known else sum(each for each in known if each is not None)


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
    return SandboxUsage(
        executions=row.executions,
        failed=row.failed,
        seconds=round(row.sandbox_seconds, 3),
        cpu_seconds=round(row.cpu_seconds, 3),
        cost=_round(prices.price_sandboxes(row.sandbox_seconds, row.pool_seconds)),
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
