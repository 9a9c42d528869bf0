"""Demo server: spreadsheets, one of them with ten thousand orders."""

import threading
from datetime import date, timedelta
from functools import cache
from typing import Annotated, Final

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

from mcp_exec_servers.command import ADDS, READS, run, seeded_random

ORDERS: Final = "abc123"
ROWS: Final = 10_000
MAX_APPENDED: Final = 10_000
"""Most rows that can be appended, over all sheets, until the server restarts."""
STATUSES: Final = ("pending", "shipped", "delivered", "cancelled")
CUSTOMERS: Final = ("Alder Ltd", "Birch & Sons", "Cedar Works", "Dogwood Inc", "Elm Trading", "Fir Foods", "Gorse Co")

SheetId = Annotated[str, Field(description="The sheet's id, from list_sheets; `abc123` has the orders", min_length=1)]
Cell = str | int | float | bool | None

server = MCPServer("sheets", instructions="Spreadsheets. Rows are objects whose keys are the headings.")
_appended: dict[str, list[dict[str, Cell]]] = {}
_lock = threading.Lock()


class Sheet(BaseModel):
    """A sheet."""

    id: str
    title: str
    rows: int = Field(description="Number of rows without the headings")
    headings: list[str]


class Appended(BaseModel):
    """Result of appending rows."""

    appended: int
    rows: int = Field(description="Number of rows of the sheet now")


@cache
def orders() -> tuple[dict[str, Cell], ...]:
    """Return the orders, which are always the same."""
    numbers = seeded_random("orders")
    return tuple(
        {
            "OrderId": 100_000 + index,
            "Customer": numbers.choice(CUSTOMERS),
            "Date": (date(2026, 1, 1) + timedelta(days=index * 300 // ROWS)).isoformat(),
            "Amount": round(numbers.uniform(5, 2500), 2),
            "Status": numbers.choices(STATUSES, weights=(1, 4, 14, 1))[0],
        }
        for index in range(ROWS)
    )


def get_rows(sheet_id: str) -> list[dict[str, Cell]]:
    """Return a sheet's rows. Raises ToolError if the sheet does not exist."""
    if sheet_id == ORDERS:
        return [*orders(), *_appended.get(sheet_id, [])]
    if sheet_id in _appended:
        return list(_appended[sheet_id])
    raise ToolError(f"there is no sheet {sheet_id!r}; list_sheets lists all sheets")


@server.tool(annotations=READS)
def list_sheets() -> list[Sheet]:
    """List the sheets with their headings."""
    with _lock:
        others = {name: list(rows) for name, rows in _appended.items() if name != ORDERS}
        size = len(get_rows(ORDERS))
    sheets = [Sheet(id=ORDERS, title="Orders 2026", rows=size, headings=list(orders()[0]))]
    return sheets + [
        Sheet(id=name, title=name, rows=len(rows), headings=list(rows[0]) if rows else [])
        for name, rows in others.items()
    ]


@server.tool(annotations=READS)
def get_sheet(
    sheet_id: SheetId,
    offset: Annotated[int, Field(ge=0, description="Rows to skip at the beginning")] = 0,
    limit: Annotated[int | None, Field(ge=1, description="Maximum number of rows; all by default")] = None,
) -> list[dict[str, Cell]]:
    """Return all rows of a sheet, as objects by heading. The sheet of orders has 10,000 rows: filter them in code."""
    with _lock:
        rows = get_rows(sheet_id)
    return rows[offset:] if limit is None else rows[offset : offset + limit]


@server.tool(annotations=ADDS)
def append_rows(
    sheet_id: Annotated[
        str, Field(description="The sheet's id; a new id creates a new sheet", pattern=r"^[\w-]{1,64}$")
    ],
    rows: Annotated[list[dict[str, Cell]], Field(min_length=1, max_length=1000, description="Objects by heading")],
) -> Appended:
    """Append rows at the end of a sheet."""
    with _lock:
        if sum(map(len, _appended.values())) + len(rows) > MAX_APPENDED:
            raise ToolError(f"at most {MAX_APPENDED} rows can be appended")
        _appended.setdefault(sheet_id, []).extend(rows)
        return Appended(appended=len(rows), rows=len(get_rows(sheet_id)))


if __name__ == "__main__":
    run(server)
