"""The board of tools: which are called, and next to what, how they fail, and what waits for a person."""

from typing import Final

from hack.monitoring.panels import FILTER, SPAN, WINDOW, Board, Panel, Query, quantiles, rate_by

_CALLS: Final = "mcp_exec_broker_calls_total"

TOOLS: Final = Board(
    name="tools",
    title="Tools",
    about="Tool calls through the broker. Servers are named NAMESPACE/NAME.",
    panels=(
        Panel(
            title="Calls by server",
            about="Ended calls per second; the empty name is that of servers that do not exist.",
            queries=(rate_by(_CALLS, "server"),),
            unit="cps",
            stacked=True,
        ),
        Panel(
            title="Calls by outcome",
            about="`denied` calls were not made; `lost` ones may have taken effect.",
            queries=(rate_by(_CALLS, "outcome"),),
            unit="cps",
            stacked=True,
        ),
        Panel(
            title="Calls by code and directly",
            about="`code` calls come from sandboxes, `direct` ones from MCP clients.",
            queries=(rate_by(_CALLS, "mode"),),
            unit="cps",
            stacked=True,
        ),
        Panel(
            title="Failures by reason",
            about="Failed calls per second. ToolError: the tool itself reported the failure.",
            queries=(rate_by("mcp_exec_broker_call_failures_total", "reason"),),
            unit="cps",
            stacked=True,
        ),
        Panel(
            title="Failures by server",
            about="Failed calls per second.",
            queries=(rate_by("mcp_exec_broker_call_failures_total", "server"),),
            unit="cps",
            stacked=True,
        ),
        Panel(
            title="Latency of calls, p95",
            about="From the arrival of a call to its answer, with the wait for an approval.",
            queries=quantiles("mcp_exec_broker_call_seconds_bucket", 0.95, by="server"),
            unit="s",
        ),
        Panel(
            title="Combinations",
            about="Executions in the shown time by the servers that they called together.",
            queries=(
                Query(
                    expr="topk(10, sum by (servers) "
                    f"(increase(mcp_exec_broker_execution_servers_total{{{FILTER}}}[{SPAN}])))",
                    legend="{{servers}}",
                ),
            ),
            bars=True,
        ),
        Panel(
            title="Calls of an execution",
            about="Three calls or more in one execution are what code saves most on.",
            queries=quantiles("mcp_exec_broker_execution_calls_bucket", 0.5, 0.95),
        ),
        Panel(
            title="Time in the broker itself",
            about="Without the server, approvals and the wait for a slot.",
            queries=quantiles("mcp_exec_broker_overhead_seconds_bucket", 0.5, 0.95),
            unit="s",
        ),
        Panel(
            title="Approvals that wait",
            about="Calls that wait for a person's decision.",
            queries=(Query(expr="sum(mcp_exec_broker_approvals_pending)", legend="pending"),),
        ),
        Panel(
            title="Approvals decided",
            about="Calls in the shown time by the final state of their approval.",
            queries=(
                Query(
                    expr=f"sum by (state) (increase(mcp_exec_broker_approvals_total[{SPAN}]))",
                    legend="{{state}}",
                ),
            ),
            bars=True,
        ),
        Panel(
            title="Servers and connections",
            about="ToolServers that answer, and open sessions with servers; connections per second by outcome.",
            queries=(
                Query(expr="max(mcp_exec_broker_servers_available)", legend="servers that answer"),
                Query(expr="sum(mcp_exec_broker_connections)", legend="open sessions"),
                Query(
                    expr=f"sum by (outcome) (rate(mcp_exec_broker_connects_total[{WINDOW}]))",
                    legend="connects: {{outcome}}",
                ),
            ),
        ),
    ),
)
