"""The board of adoption: how much works by code, and what that keeps from the model."""

from typing import Final

from hack.monitoring.panels import FILTER, SPAN, WINDOW, Board, Panel, Query, quantiles, rate_by

_CALLS: Final = "mcp_exec_broker_calls_total"
_BYTES: Final = "mcp_exec_broker_result_bytes_total"
_BY_CODE: Final = '{mode="code"}'

ADOPTION: Final = Board(
    name="adoption",
    title="Adoption",
    about="How much of the work with tools is done by code, and how many bytes of results stay in sandboxes.",
    panels=(
        Panel(
            title="Share by code",
            about="Share of the tool calls that code makes, and of the bytes of results that it reads.",
            queries=(
                Query(
                    expr=f"sum(rate({_CALLS}{_BY_CODE}[{WINDOW}])) / sum(rate({_CALLS}[{WINDOW}]))",
                    legend="tool calls",
                ),
                Query(
                    expr=f"sum(rate({_BYTES}{_BY_CODE}[{WINDOW}])) / sum(rate({_BYTES}[{WINDOW}]))",
                    legend="bytes of results",
                ),
            ),
            unit="percentunit",
            maximum=1,
        ),
        Panel(
            title="Results by mode",
            about="Bytes per second: `code` results go to a sandbox, `direct` ones to the model.",
            queries=(rate_by(_BYTES, "mode"),),
            unit="bytes",
            stacked=True,
        ),
        Panel(
            title="Results read by code, by server",
            about="Bytes in the shown time that code read and the model did not.",
            queries=(
                Query(
                    expr=f"topk(10, sum by (server) (increase({_BYTES}{_BY_CODE}[{SPAN}])))",
                    legend="{{server}}",
                ),
            ),
            unit="bytes",
            bars=True,
        ),
        Panel(
            title="Calls that one execution replaces",
            about="Each call of an execution is a turn of the model that was not needed.",
            queries=quantiles("mcp_exec_broker_execution_calls_bucket", 0.5, 0.95),
        ),
        Panel(
            title="Time in sandboxes",
            about="Sandboxes in use, by pool: the seconds to pay for, per second.",
            queries=(rate_by(f"mcp_exec_execution_sandbox_seconds_sum{{{FILTER}}}", "pool"),),
        ),
        Panel(
            title="Size of code",
            about="Bytes of the code that models write.",
            queries=quantiles(f"mcp_exec_execution_code_bytes_bucket{{{FILTER}}}", 0.5, 0.95),
            unit="bytes",
        ),
    ),
)
