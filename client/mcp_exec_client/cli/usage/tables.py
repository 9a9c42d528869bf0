"""How usage is shown in tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from mcp_exec_client.cli.options import Object
from mcp_exec_client.cli.output import TableColumn


@dataclass(frozen=True, kw_only=True)
class UsageTable:
    """A table of one part of usage, with a row for each group and part."""

    part: str
    columns: Sequence[TableColumn]


def list_rows(report: Object, table: UsageTable) -> list[Object]:
    """Return the rows of a table: parts with the key and the estimates of their group."""
    rows: list[Object] = []
    for group in report.get("groups") or ():
        estimates = {each["mode"]: each for each in group.get("estimates") or ()}
        found = group.get(table.part) or []
        parts = found if isinstance(found, list) else [found]
        named = {"key": group["key"] or "-"}
        rows += [{**part, **named, "estimate": estimates.get(part.get("mode", "code")) or {}} for part in parts]
    return rows


def _share(value: float | None) -> str | None:
    return None if value is None else f"{value:.1%}"


def _money(value: float | None) -> str | None:
    return None if value is None else f"{value:.4f}"


def _saved(row: Object) -> str | None:
    return _show_difference(row["estimate"].get("saved"))


def _lost(row: Object) -> str | None:
    return _show_difference(row["estimate"].get("lost"))


def _show_difference(value: Any) -> str | None:
    return None if value is None else f"~{value}"


_GROUP: Final = TableColumn(title="GROUP", cell=lambda row: row["key"])

MODELS: Final = UsageTable(
    part="models",
    columns=(
        _GROUP,
        TableColumn(title="MODE", cell=lambda row: row["mode"]),
        TableColumn(title="COUNTED", cell=lambda row: row["counted"]),
        TableColumn(title="TASKS", cell=lambda row: row["tasks"]),
        TableColumn(title="TOKENS IN", cell=lambda row: row["inputTokens"]),
        TableColumn(title="OUT", cell=lambda row: row["outputTokens"]),
        TableColumn(title="CACHED", cell=lambda row: row["cacheReadTokens"] + row["cacheWriteTokens"]),
        TableColumn(title="PER TASK", cell=lambda row: round(row["tokensPerTask"])),
        TableColumn(title="SUCCEEDED", cell=lambda row: _share(row.get("successShare"))),
        TableColumn(title="MEAN MS", cell=lambda row: row.get("meanLatencyMs")),
        TableColumn(title="COST", cell=lambda row: _money(row.get("cost"))),
    ),
)
SANDBOXES: Final = UsageTable(
    part="sandboxes",
    columns=(
        _GROUP,
        TableColumn(title="EXECUTIONS", cell=lambda row: row["executions"]),
        TableColumn(title="FAILED", cell=lambda row: row["failed"]),
        TableColumn(title="SANDBOX S", cell=lambda row: row["seconds"]),
        TableColumn(title="CPU S", cell=lambda row: row["cpuSeconds"]),
        TableColumn(title="COST", cell=lambda row: _money(row.get("cost"))),
        TableColumn(title="SAVED", cell=_saved),
        TableColumn(title="LOST", cell=_lost),
    ),
)
CALLS: Final = UsageTable(
    part="calls",
    columns=(
        _GROUP,
        TableColumn(title="CALLS BY", cell=lambda row: row["mode"]),
        TableColumn(title="CALLS", cell=lambda row: row["calls"]),
        TableColumn(title="FAILED", cell=lambda row: row["failed"]),
        TableColumn(title="TOKENS IN CALLS", cell=lambda row: f"~{row['argumentTokens']}"),
        TableColumn(title="IN RESULTS", cell=lambda row: f"~{row['resultTokens']}"),
    ),
)
