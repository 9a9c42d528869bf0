"""The board of adoption: how much works by code, and what that saves and costs."""

from typing import Final

from hack.monitoring.panels import FILTER, SPAN, WINDOW, Board, Panel, Query, quantiles, rate_by

_CALLS: Final = "mcp_exec_broker_calls_total"
_BYTES: Final = "mcp_exec_broker_result_bytes_total"
_BY_CODE: Final = '{mode="code"}'
_TOKENS: Final = f"mcp_exec_model_tokens_total{{{FILTER}}}"
_COST: Final = f"mcp_exec_model_cost_total{{{FILTER}}}"
_KEPT: Final = f"mcp_exec_tokens_kept_total{{{FILTER}}}"
_SAVED: Final = f"mcp_exec_tokens_saved_estimate_total{{{FILTER}}}"
_LOST: Final = f"mcp_exec_tokens_lost_estimate_total{{{FILTER}}}"


def _sum_by(selector: str, labels: str, legend: str) -> Query:
    """Return the increase of a counter in the shown time, by labels."""
    return Query(expr=f"sum by ({labels}) (increase({selector}[{SPAN}]))", legend=legend)


ADOPTION: Final = Board(
    name="adoption",
    title="Adoption and savings",
    about="How much of the work with tools is done by code, what models used in each mode, and what code saves.",
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
        Panel(
            title="Tokens by mode",
            about="Tokens per second that applications reported: `direct` is before, `code` and `hybrid` are after.",
            queries=(rate_by(_TOKENS, "mode"),),
            unit="cps",
            stacked=True,
        ),
        Panel(
            title="Tokens by kind",
            about="Reported tokens per second: read, written, and from or for the provider's cache.",
            queries=(rate_by(_TOKENS, "kind"),),
            unit="cps",
            stacked=True,
        ),
        Panel(
            title="Tokens by who counted them",
            about="Reported tokens in the shown time: the provider's own count is exact, the rest is an estimate.",
            queries=(_sum_by(_TOKENS, "counted", "{{counted}}"),),
            bars=True,
        ),
        Panel(
            title="Cost by mode",
            about="Money in the shown time by the price table of the values. Models without a price are left out.",
            queries=(_sum_by(_COST, "mode, currency", "{{mode}} ({{currency}})"),),
            bars=True,
        ),
        Panel(
            title="Cost by use case",
            about="Money in the shown time by the price table of the values. Models without a price are left out.",
            queries=(_sum_by(_COST, "use_case, currency", "{{use_case}} ({{currency}})"),),
            bars=True,
        ),
        Panel(
            title="Kept in sandboxes by use case",
            about="Estimated tokens per second of tool results that code read and the model did not.",
            queries=(rate_by(_KEPT, "use_case"),),
            unit="cps",
            stacked=True,
        ),
        Panel(
            title="Saved and lost",
            about="Estimated tokens per second that code saved, and that it cost more than direct calls.",
            queries=(
                Query(expr=f"sum(rate({_SAVED}[{WINDOW}]))", legend="saved"),
                Query(expr=f"sum(rate({_LOST}[{WINDOW}]))", legend="lost"),
            ),
            unit="cps",
        ),
        Panel(
            title="Saved by use case",
            about="Estimated tokens in the shown time, over the executions that kept more than their code takes.",
            queries=(_sum_by(_SAVED, "use_case", "{{use_case}}"),),
            bars=True,
        ),
        Panel(
            title="Lost by use case",
            about="Estimated tokens in the shown time, over the executions where direct calls were cheaper.",
            queries=(_sum_by(_LOST, "use_case", "{{use_case}}"),),
            bars=True,
        ),
    ),
)
