"""Exports records of the namespace: all rows of one table, oldest first.

The tables are executions, calls (of tools), model_usage, feedback, exposures and outcomes (of rollouts). Times are
microseconds since 1970. Parquet needs a file and the extra `parquet` of mcp-exec.

examples:
  mcp-exec records export executions
  mcp-exec records export calls --format parquet --to calls.parquet
"""

import argparse
import sys
from pathlib import Path
from typing import IO

from mcp_exec_client.cli.connection import open_client
from mcp_exec_client.cli.exit_codes import ExitCode
from mcp_exec_client.cli.interrupts import run_interruptible
from mcp_exec_client.cli.options import (
    CommandError,
    Subcommands,
    add_command,
    add_gateway_options,
    add_group,
    set_completer,
)
from mcp_exec_client.cli.records.columns import TABLES
from mcp_exec_client.cli.records.writers import open_writer, partial_path


def add_to(commands: Subcommands) -> None:
    """Add the command and its options."""
    group = add_group(commands, "records", summary="export what was run and used")
    command = add_command(group, "export", summary="export a table of the records", description=__doc__)
    command.add_argument("table", metavar="TABLE", choices=TABLES, help="table of the records")
    command.add_argument(
        "--format", metavar="FORMAT", choices=("jsonl", "parquet"), default="jsonl", help="jsonl (default) or parquet"
    )
    target = command.add_argument("--to", metavar="FILE", type=Path, help="file; default: the standard output")
    set_completer(target, "file")
    add_gateway_options(command)
    command.add_argument("-n", "--namespace", metavar="NAME", help="namespace; default: the key's own")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run `records export`. Raises CommandError."""
    if options.format == "parquet" and options.to is None:
        raise CommandError("--format parquet needs --to FILE", ExitCode.USAGE)
    if options.to is None:
        run_interruptible(_export(options, sys.stdout.buffer))
        return
    partial = partial_path(options.to)
    try:
        with partial.open("wb") as file:
            run_interruptible(_export(options, file))
        partial.replace(options.to)
    except OSError as error:
        raise CommandError(f"{error.filename or options.to}: {error.strerror or error}", ExitCode.USAGE) from error
    finally:
        partial.unlink(missing_ok=True)


async def _export(options: argparse.Namespace, file: IO[bytes]) -> None:
    writer = open_writer(options.format, file)
    async with open_client(options) as client:
        async for row in client.records.read(options.table):
            writer.write(row)
    writer.close()
