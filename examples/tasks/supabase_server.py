"""A stand-in for Supabase's MCP server: two of its tools, which only read, and one project in memory."""

import sqlite3
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

COUNTRIES = ("AT", "BR", "CA", "DE", "KE", "JP")
MAX_ROWS = 10_000
server = MCPServer("supabase")


def connect() -> sqlite3.Connection:
    """Return the project's database, which nobody can change."""
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.row_factory = sqlite3.Row
    database.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, email TEXT NOT NULL, country TEXT NOT NULL)")
    rows = (
        (number, f"user{number}@example.com", COUNTRIES[number * number % len(COUNTRIES)]) for number in range(1, 2001)
    )
    database.executemany("INSERT INTO users VALUES (?, ?, ?)", rows)
    database.execute("PRAGMA query_only = ON")
    return database


def check(project_id: str) -> None:
    """Refuse other projects."""
    if project_id != "demo":
        raise ToolError("there is one project: demo")


@server.tool()
def list_tables(project_id: str, schemas: list[str], verbose: bool = False) -> dict[str, Any]:
    """Lists all tables in one or more schemas."""
    check(project_id)
    names = [row["name"] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    count = "SELECT count(*) FROM {}"
    tables = [
        {"schema": "public", "name": name, "rows": database.execute(count.format(name)).fetchone()[0]} for name in names
    ]
    return {"tables": tables if "public" in schemas else []}


@server.tool()
def execute_sql(project_id: str, query: str) -> dict[str, Any]:
    """Executes raw SQL in the database."""
    check(project_id)
    try:
        return {"result": [dict(row) for row in database.execute(query).fetchmany(MAX_ROWS)]}
    except sqlite3.Error as error:
        raise ToolError(str(error)) from error


database = connect()
if __name__ == "__main__":
    server.run()
