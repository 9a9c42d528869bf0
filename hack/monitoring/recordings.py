"""Recording rules: what alerts compare with their limits."""

from typing import Final

from hack.monitoring.rules import Recording

from mcp_exec_api.reasons.execution import Reason

CALLERS_OWN: Final = (
    Reason.USER_ERROR,
    Reason.EXIT_CODE,
    Reason.RUNNER_DIED,
    Reason.OUT_OF_MEMORY,
    Reason.PROCESS_LIMIT,
    Reason.STORAGE_LIMIT,
    Reason.OUTPUT_LIMIT,
    Reason.TIMEOUT,
    Reason.CANCELLED,
    Reason.REJECTED,
    Reason.POOL_NOT_FOUND,
    Reason.LANGUAGE_NOT_OFFERED,
    Reason.LANGUAGE_NOT_CHECKED,
    Reason.SESSION_BUSY,
    Reason.SESSION_LIMIT,
    Reason.WORKSPACE_BUSY,
    Reason.WORKSPACE_CONFLICT,
    Reason.WORKSPACE_TOO_LARGE,
)
"""Reasons that lie with the code or its caller. All others are faults of the platform."""

_OWN: Final = "|".join(reason.value for reason in CALLERS_OWN)
_POOL: Final = "release, namespace, pool"
_EXECUTIONS: Final = "mcp_exec_executions_total"
_FAULTS: Final = f'{_EXECUTIONS}{{phase=~"Failed|TimedOut", reason!~"{_OWN}"}}'
_CALLS: Final = "mcp_exec_broker_calls_total"
_REQUESTS: Final = "mcp_exec_gateway_requests_total"
TARGET_SECONDS: Final = "mcp_exec:target_seconds"
TARGET_FAILURES: Final = "mcp_exec:target_failures_ratio"
"""Names of the targets, which the chart records if `monitoring.rules.targets` sets them."""


def _share(part: str, whole: str, *, by: str = "release", window: str = "5m") -> str:
    """Return the share of a counter's part; 0 if there is no such part, nothing if nothing was counted."""
    all_of = f"sum by ({by}) (rate({whole}[{window}]))"
    return f"(sum by ({by}) (rate({part}[{window}])) or {all_of} * 0) / ({all_of} > 0)"


FAILURES: Final = "mcp_exec:execution_failures:ratio_rate"
"""Begin of the names of the share of failures, which end with its window."""
BURN_WINDOWS: Final = (("1h", "5m", 14.4), ("6h", "30m", 6))
"""Long and short window of a burn rate, and how many times the target the share of failures is in both.

A month's failures would be used up in two and in five days: the paging conditions of chapter 5 of Google's
SRE workbook.
"""


RECORDINGS: Final = (
    Recording(
        name="mcp_exec:executions:rate5m",
        expr=f"sum by ({_POOL}, phase, reason) (rate({_EXECUTIONS}[5m]))",
    ),
    Recording(
        name="mcp_exec:execution_faults:ratio_rate5m",
        expr=_share(_FAULTS, _EXECUTIONS, by=_POOL),
    ),
    *(
        Recording(
            name=f"{FAILURES}{window}",
            expr=_share(f'{_EXECUTIONS}{{phase=~"Failed|TimedOut"}}', _EXECUTIONS, window=window),
        )
        for window in sorted({each for windows in BURN_WINDOWS for each in windows[:2]})
    ),
    Recording(
        name="mcp_exec:execution_stage_seconds:p95_rate5m",
        expr=f"histogram_quantile(0.95, sum by (le, stage, {_POOL}) "
        "(rate(mcp_exec_execution_stage_seconds_bucket[5m])))",
    ),
    Recording(
        name="mcp_exec:warm_starts:ratio_rate5m",
        expr=_share(f'{_EXECUTIONS}{{start=~"Warm|Reused|Session"}}', f'{_EXECUTIONS}{{start!=""}}', by=_POOL),
    ),
    Recording(
        name="mcp_exec:gateway_errors:ratio_rate5m",
        expr=_share(f'{_REQUESTS}{{code=~"5.."}}', _REQUESTS),
    ),
    Recording(
        name="mcp_exec:tool_call_failures:ratio_rate5m",
        expr=_share(f'{_CALLS}{{outcome=~"error|timeout|lost"}}', _CALLS, by="release, server"),
    ),
    Recording(
        name="mcp_exec:tool_calls_by_code:ratio_rate5m",
        expr=_share(f'{_CALLS}{{mode="code"}}', _CALLS),
    ),
)
