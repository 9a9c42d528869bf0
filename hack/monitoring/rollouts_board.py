"""The board of rollouts: stages, arms and guards."""

from typing import Final

from hack.monitoring.panels import FILTER, Board, Panel, Query, Unit


def _show_arms(metric: str, *, title: str, about: str, unit: Unit = "short", maximum: float | None = None) -> Panel:
    """Return a panel with a series for each arm of each rollout."""
    expr = f"max by (rollout, arm) (mcp_exec_rollout_{metric}{{{FILTER}}})"
    query = Query(expr=expr, legend="{{rollout}} {{arm}}")
    return Panel(title=title, about=about, queries=(query,), unit=unit, maximum=maximum)


ROLLOUTS: Final = Board(
    name="rollouts",
    title="Rollouts",
    about="Stages of rollouts, what their arms get and measure, and what their guards find.",
    panels=(
        Panel(
            title="Stage",
            about="Number of the present stage, from 1; 0 before the first.",
            queries=(Query(expr=f"max by (rollout) (mcp_exec_rollout_stage{{{FILTER}}})", legend="{{rollout}}"),),
        ),
        Panel(
            title="Phase",
            about="Rollouts by phase. RolledBack and Aborted give every unit the control arm.",
            queries=(Query(expr=f"sum by (phase) (mcp_exec_rollout_phase{{{FILTER}}})", legend="{{phase}}"),),
            stacked=True,
        ),
        Panel(
            title="Guards that are violated",
            about="1 while an arm is beyond the limit of a guard, which pauses or rolls back its rollout.",
            queries=(
                Query(
                    expr=f"max by (rollout, guard) (mcp_exec_rollout_guard_violated{{{FILTER}}})",
                    legend="{{rollout}} {{guard}}",
                ),
            ),
            maximum=1,
        ),
        _show_arms(
            "arm_share_ratio",
            title="Share of units",
            about="Expected share of units that get each arm, without users by name.",
            unit="percentunit",
            maximum=1,
        ),
        _show_arms("arm_exposed_units", title="Units", about="Units of each arm that have outcomes."),
        _show_arms("arm_outcomes", title="Outcomes", about="Outcomes of each arm that count."),
        _show_arms(
            "arm_error_ratio",
            title="Failures",
            about="Share of each arm's outcomes that failed.",
            unit="percentunit",
            maximum=1,
        ),
        _show_arms(
            "arm_latency_p95_seconds",
            title="Latency p95",
            about="95th percentile of the latency of each arm's outcomes.",
            unit="s",
        ),
        _show_arms(
            "arm_cost_mean", title="Cost", about="Mean cost of each arm's outcomes, in the application's currency."
        ),
        _show_arms("arm_rating_mean", title="Rating", about="Mean rating of each arm's outcomes, from 1 to 5."),
    ),
)
