"""Exports records of the namespace: all rows of one table, oldest first.

The tables are executions, calls (of tools), model_usage, feedback, exposures and outcomes (of rollouts), and key_uses
(hours in which API keys were used). Times are microseconds since 1970. Parquet needs a file and the extra `parquet` of
mcp-exec.

examples:
  mcp-exec records export executions
  mcp-exec records export calls --format parquet --to calls.parquet
"""

import argparse
import json
import sys
from pathlib import Path
from typing import IO, Any, Final

from mcp_exec_client.cli.connection import open_client
from mcp_exec_client.cli.exit_codes import CommandError, ExitCode
from mcp_exec_client.cli.options import (
    Subcommands,
    add_client_options,
    add_command,
    add_group,
    run_interruptible,
    set_completer,
)

TABLES: Final = ("executions", "calls", "model_usage", "feedback", "exposures", "outcomes", "key_uses")
INTEGERS: Final = frozenset(
    {
        *("created_at", "started_at", "finished_at", "stored_at", "at", "duration_ms", "queue_ms", "latency_ms"),
        *("peak_memory_bytes", "code_bytes", "argument_bytes", "result_bytes"),
        *("tokens_code", "tokens_returned", "tokens_kept", "result_tokens", "tokens", "definition_tokens"),
        *("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"),
        *("tool_calls", "failed_calls", "calls", "turns", "rating"),
    }
)
REALS: Final = frozenset({"cpu_seconds", "sandbox_seconds", "cost"})
FLAGS: Final = frozenset({"warm", "success"})
_ROWS: Final = 10_000
"""Rows of a group of a Parquet file, which are in memory at once."""
Row = dict[str, Any]


class JsonLinesWriter:
    """A line of JSON for each row."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, row: Row) -> None:
        """Write a row."""
        self._file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")

    def close(self) -> None:
        """Write what is buffered."""
        self._file.flush()


class ParquetWriter:
    """A file of Apache Parquet, with the columns of the first row. Needs pyarrow."""

    def __init__(self, file: IO[bytes]) -> None:
        import pyarrow.parquet  # noqa: F401 - missing packages are named before anything is read

        self._file = file
        self._rows: list[Row] = []
        self._writer: Any = None

    def write(self, row: Row) -> None:
        """Keep a row for the next group."""
        self._rows.append(row)
        if len(self._rows) >= _ROWS:
            self._write_group()

    def close(self) -> None:
        """Write the last group and the file's index."""
        self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        import pyarrow
        import pyarrow.parquet

        if self._writer is None:
            first = self._rows[0] if self._rows else {}
            self._schema = pyarrow.schema([(name, _find_type(name)) for name in first])
            self._writer = pyarrow.parquet.ParquetWriter(self._file, self._schema)
        self._writer.write_table(pyarrow.Table.from_pylist(self._rows, schema=self._schema))
        self._rows = []


def _find_type(column: str) -> Any:
    import pyarrow

    if column in INTEGERS:
        return pyarrow.int64()
    if column in REALS:
        return pyarrow.float64()
    return pyarrow.bool_() if column in FLAGS else pyarrow.string()


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
    add_client_options(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run `records export`. Raises CommandError."""
    if options.format == "parquet" and options.to is None:
        raise CommandError("--format parquet needs --to FILE", ExitCode.USAGE)
    if options.to is None:
        run_interruptible(_export(options, sys.stdout.buffer))
        return
    partial = options.to.with_name(options.to.name + ".part")  # a complete file is never half a file
    try:
        with partial.open("wb") as file:
            run_interruptible(_export(options, file))
        partial.replace(options.to)
    except OSError as error:
        raise CommandError(f"{error.filename or options.to}: {error.strerror or error}", ExitCode.USAGE) from error
    finally:
        partial.unlink(missing_ok=True)


async def _export(options: argparse.Namespace, file: IO[bytes]) -> None:
    writer = ParquetWriter(file) if options.format == "parquet" else JsonLinesWriter(file)
    async with open_client(options) as client:
        async for row in client.records.read(options.table):
            writer.write(row)
    writer.close()
