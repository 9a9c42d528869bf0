"""What the records say about usage: sums of rows by group, as the broker answers them."""

from typing import Annotated, TypeGuard, get_args

from pydantic import Field

from mcp_exec_api.meta import Model
from mcp_exec_api.wire.usage import UsageGrouping


def is_usage_grouping(text: str) -> TypeGuard[UsageGrouping]:
    """Return whether usage can be grouped by this."""
    return text in get_args(UsageGrouping)


MAX_USAGE_ROWS = 2000
"""Most rows of each kind in an answer; the largest come first."""
MAX_USAGE_DAYS = 400
"""Longest time in days over which usage is summed."""

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
    """Seconds for which they had sandboxes."""
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


class MeasuredUsage(Model):
    """Sums of the records of a namespace over a time."""

    tokens: Annotated[list[MeasuredTokens], Field(max_length=MAX_USAGE_ROWS)] = []
    """Reports about models."""
    executions: Annotated[list[MeasuredExecutions], Field(max_length=MAX_USAGE_ROWS)] = []
    """Executions."""
    calls: Annotated[list[MeasuredCalls], Field(max_length=MAX_USAGE_ROWS)] = []
    """Tool calls."""
    is_complete: bool = True
    """Whether no row was left out for their number."""
