"""Shows what models, sandboxes and tools used in the namespace, and what it cost.

A first table has the tokens that applications reported, by mode; a second one the sandboxes, tool calls and their
estimated tokens. SAVED and LOST compare with the other mode: estimates from recorded sizes, without tool definitions
and repeated messages. GIB S is the highest memory of executions for the time that they had sandboxes. A line has the
cost of all groups. An empty cost means that a price or the figures are missing: see `prices` of the chart.

examples:
  mcp-exec usage
  mcp-exec usage --by day --since 7d
  mcp-exec usage --by caller --since 2026-11-01 --until 2026-12-01 -o json
"""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, get_args

from mcp_exec_api.constants import UsageGrouping
from mcp_exec_client.cli.connection import open_client
from mcp_exec_client.cli.exit_codes import CommandError, ExitCode
from mcp_exec_client.cli.options import Object, Subcommands, add_client_options, add_command, add_output_option
from mcp_exec_client.cli.output import TableColumn, fields, print_data, print_line, print_note, print_table

_GROUP: Final = TableColumn(title="GROUP", cell=lambda row: row["key"])
_GROUPINGS: Final = get_args(UsageGrouping)
_AGO: Final = re.compile(r"([1-9][0-9]{0,4})([hd])")
_UNITS: Final = {"h": "hours", "d": "days"}


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


def _estimate(row: Object, name: str) -> str | None:
    value = row["estimate"].get(name)
    return None if value is None else f"~{value}"


MODELS: Final = UsageTable(
    part="models",
    columns=(
        _GROUP,
        *fields("mode", "counted", "tasks"),
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
        *fields("executions", "failed"),
        TableColumn(title="SANDBOX S", cell=lambda row: row["seconds"]),
        TableColumn(title="CPU S", cell=lambda row: row["cpuSeconds"]),
        TableColumn(title="GIB S", cell=lambda row: row.get("gibSeconds")),
        TableColumn(title="COST", cell=lambda row: _money(row.get("cost"))),
        TableColumn(title="SAVED", cell=lambda row: _estimate(row, "saved")),
        TableColumn(title="LOST", cell=lambda row: _estimate(row, "lost")),
    ),
)
CALLS: Final = UsageTable(
    part="calls",
    columns=(
        _GROUP,
        TableColumn(title="CALLS BY", cell=lambda row: row["mode"]),
        *fields("calls", "failed"),
        TableColumn(title="TOKENS IN CALLS", cell=lambda row: f"~{row['argumentTokens']}"),
        TableColumn(title="IN RESULTS", cell=lambda row: f"~{row['resultTokens']}"),
    ),
)


COMBINATIONS: Final = (
    TableColumn(title="TOOLS CALLED TOGETHER", cell=lambda row: " + ".join(row["tools"])),
    TableColumn(title="EXECUTIONS", cell=lambda row: row["executions"]),
)


def add_to(commands: Subcommands) -> None:
    """Add the command and its options."""
    command = add_command(commands, "usage", summary="show tokens, money and savings", description=__doc__, run=_run)
    command.add_argument(
        "--by", metavar="GROUP", choices=_GROUPINGS, default=_GROUPINGS[0],
        help=f"one of {', '.join(_GROUPINGS)}; default: {_GROUPINGS[0]}",
    )  # fmt: skip
    command.add_argument("--since", metavar="TIME", help="begin: 7d, 12h, or a date or time; default: 30d")
    command.add_argument("--until", metavar="TIME", help="end, excluded: 1d, 12h, or a date or time; default: now")
    add_output_option(command, "table", "json", "yaml")
    add_client_options(command)


async def _run(options: argparse.Namespace) -> None:
    since, until = read_moment("--since", options.since), read_moment("--until", options.until)
    async with open_client(options) as client:
        found = await client.usage(by=options.by, since=since, until=until)
    report = found.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if options.output in ("json", "yaml"):
        print_data(report, form=options.output)
        return
    _print_tables(report)


def _print_tables(report: Object) -> None:
    tables = [each for each in (MODELS, SANDBOXES, CALLS) if list_rows(report, each)]
    if not tables:
        print_note("nothing was used in this time")
    for number, table in enumerate(tables):
        if number:
            print_line("")
        _print_table(report, table)
    if combinations := report.get("combinations"):
        print_line("")
        print_table(COMBINATIONS, combinations)
    if counted := report.get("conversations"):
        print_line("")
        share = _share(counted["codeShare"])
        print_line(f"{counted['withCode']} of {counted['total']} conversations used code ({share})")
    if total := report.get("total"):
        print_line("")
        print_line(describe_costs(report))
        if unmeasured := (total.get("sandboxes") or {}).get("unmeasured"):
            print_note(f"executions that lack processor time or memory, which the cost leaves out: {unmeasured}")
    if not report.get("isComplete", True):
        print_note("there are more groups: these are the largest")


def describe_costs(report: Object) -> str:
    """Return the line of what everything cost and what that is made of. An amount that is not known is `unknown`."""
    total, parts = report["total"], []
    if any(group.get("models") for group in report["groups"]):
        parts.append(f"models {_money(total.get('models')) or 'unknown'}")
    if sandboxes := total.get("sandboxes"):
        costs = sandboxes.get("costs") or {}
        known = [f"{name} {_money(costs[name])}" for name in ("time", "processor", "memory") if name in costs]
        parts.append(f"sandboxes {_money(sandboxes.get('cost')) or 'unknown'}")
        parts[-1] += f" ({', '.join(known)})" if known else ""
    return f"cost in all: {_money(total.get('cost')) or 'unknown'} {report['currency']}: {', '.join(parts)}"


def _print_table(report: Object, table: UsageTable) -> None:
    currency = str(report.get("currency") or "")
    columns = [replace(each, title=each.title.replace("COST", f"COST {currency}")) for each in table.columns]
    print_table(columns, list_rows(report, table))


def read_moment(option: str, text: str | None) -> datetime | None:
    """Return the time that an option names: so long ago, or a date or time of ISO 8601. Raises CommandError."""
    if text is None:
        return None
    if match := _AGO.fullmatch(text):
        return datetime.now(UTC) - timedelta(**{_UNITS[match[2]]: int(match[1])})
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise CommandError(
            f"{option}: {text[:50]!r} is no time; allowed: 7d, 12h, 2026-11-01, 2026-11-01T08:00:00Z", ExitCode.USAGE
        ) from None
