"""Shows what models, sandboxes and tools used in the namespace, and what it cost.

A first table has the tokens that applications reported, by mode; a second one the sandboxes, tool calls and their
estimated tokens. SAVED and LOST compare with the other mode: estimates from recorded sizes, without tool definitions
and repeated messages. An empty cost means that a price is missing: see `prices` of the chart.

examples:
  mcp-exec usage
  mcp-exec usage --by day --since 7d
  mcp-exec usage --by caller --since 2026-11-01 --until 2026-12-01 -o json
"""

import argparse
import re
from datetime import UTC, datetime, timedelta
from typing import Final

from mcp_exec_client.cli.connection import open_client
from mcp_exec_client.cli.exit_codes import ExitCode
from mcp_exec_client.cli.interrupts import run_interruptible
from mcp_exec_client.cli.options import (
    CommandError,
    Object,
    Subcommands,
    add_command,
    add_gateway_options,
    add_output_option,
)
from mcp_exec_client.cli.output import print_data, print_table
from mcp_exec_client.cli.terminal import print_line, print_note
from mcp_exec_client.cli.usage.tables import CALLS, MODELS, SANDBOXES, UsageTable, list_rows

_GROUPINGS: Final = ("use-case", "caller", "tool", "arm", "day", "model")
_AGO: Final = re.compile(r"([1-9][0-9]{0,4})([hd])")
_UNITS: Final = {"h": "hours", "d": "days"}


def add_to(commands: Subcommands) -> None:
    """Add the command and its options."""
    command = add_command(commands, "usage", summary="show tokens, money and savings", description=__doc__)
    command.add_argument(
        "--by", metavar="GROUP", choices=_GROUPINGS, default=_GROUPINGS[0],
        help="use-case (default), caller, tool, arm, day or model",
    )  # fmt: skip
    command.add_argument("--since", metavar="TIME", help="begin: 7d, 12h, or a date or time; default: 30d")
    command.add_argument("--until", metavar="TIME", help="end, excluded: 1d, 12h, or a date or time; default: now")
    add_output_option(command, "table", "json", "yaml")
    add_gateway_options(command)
    command.add_argument("-n", "--namespace", metavar="NAME", help="namespace; default: the key's own")
    command.set_defaults(run=lambda options: run_interruptible(_run(options)))


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
    if not report.get("isComplete", True):
        print_note("there are more groups: these are the largest")


def _print_table(report: Object, table: UsageTable) -> None:
    currency = str(report.get("currency") or "")
    titles = [each.title.replace("COST", f"COST {currency}") for each in table.columns]
    print_table(titles, [[each.cell(row) for each in table.columns] for row in list_rows(report, table)])


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
