"""Files of records: JSON Lines and Parquet."""

import json
from pathlib import Path
from typing import IO, Any, Final, Protocol

from mcp_exec_client.cli.records.columns import FLAGS, INTEGERS, REALS

_ROWS: Final = 10_000
"""Rows of a group of a Parquet file, which are in memory at once."""

Row = dict[str, Any]


class RowWriter(Protocol):
    """Writes rows to a file."""

    def write(self, row: Row) -> None:
        """Write a row, at the latest when the file is closed."""

    def close(self) -> None:
        """Complete the file."""


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


def open_writer(form: str, file: IO[bytes]) -> RowWriter:
    """Return the writer of a format: jsonl or parquet."""
    return ParquetWriter(file) if form == "parquet" else JsonLinesWriter(file)


def partial_path(path: Path) -> Path:
    """Return the path of a file while it is written, so that a complete one is never half a file."""
    return path.with_name(path.name + ".part")
