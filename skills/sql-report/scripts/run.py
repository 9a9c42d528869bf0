"""SQL over rows in memory."""

import json
import sqlite3


def run(
    tables: dict[str, list[dict]],
    query: str,
    parameters: dict | None = None,
    markdown: bool = False,
    limit: int = 1000,
) -> list[dict] | str:
    """Load the tables into SQLite and return the rows of a query, or a Markdown table of them.

    Args:
        tables: rows by the name of the table.
        query: one SELECT, with values as `:name`.
        parameters: the values by their names.
        markdown: whether to return a Markdown table.
        limit: maximum number of rows. If there are more, a line on standard output says so.
    """
    connection = sqlite3.connect(":memory:")
    try:
        for name, rows in tables.items():
            _load(connection, name, rows)
        cursor = connection.execute(query, parameters or {})
        names = _distinguish([column[0] for column in cursor.description or ()])
        found = [dict(zip(names, row, strict=True)) for row in cursor.fetchmany(limit)]
        if cursor.fetchone() is not None:
            print(f"sql-report: there are more than {limit} rows; only the first {limit} are returned")  # noqa: T201
    finally:
        connection.close()
    return _format(names, found) if markdown else found


def _distinguish(names: list[str]) -> list[str]:
    """Return the names with a number for the further columns of one: `id`, `id_2`."""
    counts = dict.fromkeys(names, 0)
    numbered = []
    for name in names:
        counts[name] += 1
        numbered.append(name if counts[name] == 1 else f"{name}_{counts[name]}")
    return numbered


def _load(connection: sqlite3.Connection, table: str, rows: list[dict]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row)) or ["empty"]
    columns = ", ".join(map(_quote, names))
    connection.execute(" ".join(["CREATE TABLE", _quote(table), f"({columns})"]))
    marks = ", ".join("?" for _ in names)
    insert = " ".join(["INSERT INTO", _quote(table), f"VALUES ({marks})"])
    connection.executemany(insert, ([_to_sql(row.get(name)) for name in names] for row in rows))


def _quote(name: str) -> str:
    return '"' + str(name).replace('"', '""') + '"'


def _to_sql(value: object) -> object:
    if isinstance(value, int) and abs(value) >= 2**63:
        return str(value)  # SQLite's integers have 64 bits
    if value is None or isinstance(value, str | int | float | bytes):
        return value
    return json.dumps(value, default=str)


def _format(names: list[str], rows: list[dict]) -> str:
    lines = [names, ["---"] * len(names), *([row[name] for name in names] for row in rows)]
    cells = (
        ["" if cell is None else str(cell).replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines
    )
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)
