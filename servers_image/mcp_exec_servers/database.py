"""A demo server: a small trading company's SQLite database, in memory. Values travel as parameters, never in SQL."""

import sqlite3
import threading
from typing import Annotated, Any, Final

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

from mcp_exec_servers.command import DESTROYS, READS, run
from mcp_exec_servers.northwind import fill

MAX_ROWS: Final = 10_000
MAX_STEPS: Final = 200
"""Times that a query may take another 100,000 steps of SQLite's machine."""

Cell = str | int | float | None
Sql = Annotated[
    str,
    Field(
        min_length=1,
        max_length=20_000,
        description="One statement, with ? or :name where values belong, such as `SELECT * FROM orders WHERE id = ?`",
    ),
]
Parameters = Annotated[
    list[Cell] | dict[str, Cell] | None, Field(description="The values: a list for ?, an object for :name")
]

server = MCPServer(
    "database",
    instructions="A trading company's database in SQLite. Tables: categories, suppliers, products, customers, "
    "employees, orders, order_details. Values travel as parameters: SQL with quoted text is refused.",
)
_lock = threading.Lock()


class Column(BaseModel):
    """A column of a table."""

    name: str
    type: str
    nullable: bool
    primary_key: bool
    references: str | None = Field(default=None, description="TABLE.COLUMN that it points to")


class Table(BaseModel):
    """A table."""

    name: str
    rows: int
    columns: list[Column]


class Change(BaseModel):
    """What a statement did."""

    changed: int = Field(description="Rows")
    last_id: int | None = Field(default=None, description="The id of the last row that was inserted")


class Database:
    """One connection, used by one call at a time."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._connection.row_factory = sqlite3.Row
        fill(self._connection)
        self._connection.execute("PRAGMA foreign_keys = ON")
        self._steps = 0
        self._connection.set_progress_handler(self._step, 100_000)

    def _step(self) -> bool:
        self._steps += 1
        return self._steps > MAX_STEPS

    def run(self, sql: str, parameters: list[Cell] | dict[str, Cell] | None, *, writes: bool) -> sqlite3.Cursor:
        """Runs one statement; ToolError with what SQLite says of a bad one."""
        _refuse_text(sql)
        self._steps = 0
        self._connection.execute(f"PRAGMA query_only = {'OFF' if writes else 'ON'}")
        self._connection.set_authorizer(_authorize)
        try:
            return self._connection.execute(sql, parameters or ())
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise ToolError(f"{error}") from error
        finally:
            self._connection.set_authorizer(None)

    def rows(self, sql: str, parameters: list[Cell] | dict[str, Cell] | None) -> list[dict[str, Cell]]:
        """The rows of a query."""
        cursor = self.run(sql, parameters, writes=False)
        try:
            rows = cursor.fetchmany(MAX_ROWS + 1)
        except sqlite3.Error as error:
            raise ToolError(f"{error}") from error
        if len(rows) > MAX_ROWS:
            raise ToolError(f"more than {MAX_ROWS} rows: use LIMIT")
        return [dict(row) for row in rows]


def _refuse_text(sql: str) -> None:
    if "'" in sql or '"' in sql:
        raise ToolError("quoted text in SQL is refused: write ? in its place, and the value into parameters")


def _authorize(action: int, one: str | None, two: str | None, *_: Any) -> int:
    """Files, pragmas and the schema are out of reach."""
    allowed = (
        sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE,
        sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE,
    )  # fmt: skip
    if action == sqlite3.SQLITE_FUNCTION and two in ("load_extension", "randomblob", "zeroblob"):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in allowed else sqlite3.SQLITE_DENY


_database = Database()


@server.tool(annotations=READS)
def list_tables() -> list[Table]:
    """The tables, with their columns and how many rows they have."""
    with _lock:
        connection = _database._connection
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")]
        return [_table(connection, name) for name in names]


def _table(connection: sqlite3.Connection, name: str) -> Table:
    targets = {
        row["from"]: f"{row['table']}.{row['to']}" for row in connection.execute(f"PRAGMA foreign_key_list({name})")
    }
    columns = [
        Column(
            name=row["name"],
            type=row["type"],
            nullable=not row["notnull"],
            primary_key=bool(row["pk"]),
            references=targets.get(row["name"]),
        )
        for row in connection.execute(f"PRAGMA table_info({name})")
    ]
    # the name comes from the database's own list of tables
    rows = connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
    return Table(name=name, rows=rows, columns=columns)


@server.tool(annotations=READS)
def query(sql: Sql, parameters: Parameters = None) -> list[dict[str, Cell]]:
    """Runs a SELECT and returns its rows as objects, at most 10,000."""
    with _lock:
        return _database.rows(sql, parameters)


@server.tool(annotations=DESTROYS)
def execute(sql: Sql, parameters: Parameters = None) -> Change:
    """Runs an INSERT, UPDATE or DELETE and tells how many rows it changed."""
    with _lock:
        cursor = _database.run(sql, parameters, writes=True)
        return Change(changed=max(cursor.rowcount, 0), last_id=cursor.lastrowid)


if __name__ == "__main__":
    run(server)
