"""The board of the service: is it up, fast, and large enough."""

from typing import Final

from hack.monitoring.panels import FILTER, WINDOW, Board, Panel, Query, quantiles, rate_by
from hack.monitoring.recordings import BURN_WINDOWS, FAILURES, TARGET_FAILURES, TARGET_SECONDS

_EXECUTIONS: Final = "mcp_exec_executions_total"
_STAGES: Final = "mcp_exec_execution_stage_seconds_bucket"

SERVICE: Final = Board(
    name="service",
    title="Service",
    about="Executions, their latency and failures, and the pods that run them.",
    panels=(
        Panel(
            title="Executions",
            about="Finished executions per second by phase.",
            queries=(rate_by(f"{_EXECUTIONS}{{{FILTER}}}", "phase"),),
            unit="cps",
            stacked=True,
        ),
        Panel(
            title="Latency",
            about="From an execution's creation to its end; the target is 2 s, or the chart's own.",
            queries=(
                *quantiles(f'{_STAGES}{{stage="total", {FILTER}}}', 0.5, 0.95, 0.99),
                Query(expr=f"max({TARGET_SECONDS}) or vector(2)", legend="target of p95"),
            ),
            unit="s",
        ),
        Panel(
            title="Latency of each stage, p95",
            about="A slow `queued` needs more warm pods; a slow `run` is the code's own time.",
            queries=(
                Query(
                    expr="histogram_quantile(0.95, sum by (le, stage) "
                    f'(rate({_STAGES}{{stage!="total", {FILTER}}}[{WINDOW}])))',
                    legend="{{stage}}",
                ),
            ),
            unit="s",
        ),
        Panel(
            title="Failures by reason",
            about="Executions per second that did not succeed. UserError and ExitCode are failures of the code itself.",
            queries=(rate_by(f'{_EXECUTIONS}{{phase!="Succeeded", {FILTER}}}', "reason"),),
            unit="cps",
            stacked=True,
        ),
        Panel(
            title="Share of failures",
            about="Executions that failed or timed out, by code or platform; the target is 1 %, or the chart's own.",
            queries=(
                Query(
                    expr=f'(sum(rate({_EXECUTIONS}{{phase=~"Failed|TimedOut", {FILTER}}}[{WINDOW}])) or vector(0))'
                    f" / sum(rate({_EXECUTIONS}{{{FILTER}}}[{WINDOW}]))",
                    legend="failures",
                ),
                Query(expr=f"max({TARGET_FAILURES}) or vector(0.01)", legend="target"),
            ),
            unit="percentunit",
        ),
        Panel(
            title="Burn rate",
            about="Share of failures as a multiple of the target, in an hour and in six; alerts begin at "
            + " and ".join(f"{factor:g}" for *_, factor in BURN_WINDOWS)
            + ".",
            queries=tuple(
                Query(expr=f"max({FAILURES}{window}) / (max({TARGET_FAILURES}) or vector(0.01))", legend=window)
                for window, *_ in BURN_WINDOWS
            ),
        ),
        Panel(
            title="Memory of the limit",
            about="Share of its memory's limit that each process uses; an alert begins at 85 %.",
            queries=(
                Query(
                    expr="max by (component) (process_resident_memory_bytes"
                    " / on (release, job, instance) group_right () mcp_exec_memory_limit_bytes)",
                    legend="{{component}}",
                ),
            ),
            unit="percentunit",
            maximum=1,
        ),
        Panel(
            title="Warm hits",
            about="Share of executions that found a pod which was ready.",
            queries=(
                Query(
                    expr=f'sum by (pool) (rate({_EXECUTIONS}{{start=~"Warm|Reused|Session", {FILTER}}}[{WINDOW}]))'
                    f' / sum by (pool) (rate({_EXECUTIONS}{{start!="", {FILTER}}}[{WINDOW}]))',
                    legend="{{pool}}",
                ),
            ),
            unit="percentunit",
            maximum=1,
        ),
        Panel(
            title="Queue",
            about="Executions that wait for a pod.",
            queries=(
                Query(expr=f"max by (namespace, pool) (mcp_exec_pool_queued{{{FILTER}}})", legend="{{pool}}"),
                Query(expr="sum(mcp_exec_executions_active)", legend="waiting or running, all pools"),
            ),
        ),
        Panel(
            title="Pods by state",
            about="Pods of all pools; `warm` ones are ready and idle.",
            queries=(Query(expr=f"sum by (state) (mcp_exec_pool_pods{{{FILTER}}})", legend="{{state}}"),),
            stacked=True,
        ),
        Panel(
            title="Pod starts, p95",
            about="Seconds until a new pod is warm.",
            queries=(
                Query(
                    expr="histogram_quantile(0.95, sum by (le, pool) "
                    f"(rate(mcp_exec_pod_start_seconds_bucket{{{FILTER}}}[{WINDOW}])))",
                    legend="{{pool}}",
                ),
            ),
            unit="s",
        ),
        Panel(
            title="Pod failures by reason",
            about="Pods per second that the API server refused or that failed before they served.",
            queries=(rate_by(f"mcp_exec_pod_failures_total{{{FILTER}}}", "reason"),),
            unit="cps",
            stacked=True,
        ),
        Panel(
            title="Sandbox CPU",
            about="Processor cores that code used, by pool, as the sandboxes measured it.",
            queries=(rate_by(f"mcp_exec_execution_cpu_seconds_sum{{{FILTER}}}", "pool"),),
        ),
        Panel(
            title="Sandbox memory",
            about="Peak memory of executions: half of them, and 95 %, stay below.",
            queries=quantiles(f"mcp_exec_execution_peak_memory_bytes_bucket{{{FILTER}}}", 0.5, 0.95),
            unit="bytes",
        ),
        Panel(
            title="Requests at the gateway",
            about="Requests per second by status code; 499 if the client disconnected.",
            queries=(rate_by("mcp_exec_gateway_requests_total", "code"),),
            unit="reqps",
            stacked=True,
        ),
        Panel(
            title="Stages of a request at the gateway, p95",
            about="`create` is the API server's time, `wait` that of the execution.",
            queries=(
                Query(
                    expr="histogram_quantile(0.95, sum by (le, stage) "
                    f"(rate(mcp_exec_gateway_stage_seconds_bucket[{WINDOW}])))",
                    legend="{{stage}}",
                ),
            ),
            unit="s",
        ),
        Panel(
            title="Open requests at the gateway",
            about="Requests that wait for an execution, and event streams.",
            queries=(
                Query(expr="sum(mcp_exec_gateway_waiters)", legend="waiting"),
                Query(expr="sum(mcp_exec_gateway_open_streams)", legend="event streams"),
            ),
        ),
        Panel(
            title="Writes to the API server",
            about="Writes of the operator per second.",
            queries=(rate_by("mcp_exec_api_writes_total", "what"),),
            unit="ops",
            stacked=True,
        ),
    ),
)
