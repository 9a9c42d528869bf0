"""A demo server: spreadsheets, one of them with ten thousand orders."""

import threading
from datetime import date, timedelta
from functools import cache
from typing import Annotated, Final

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

from mcp_exec_servers.command import ADDS, READS, dice, run

ORDERS: Final = "abc123"
ROWS: Final = 10_000
MAX_APPENDED: Final = 10_000
"""Rows that may be appended to a sheet while the server lives."""
STATUSES: Final = ("pending", "shipped", "delivered", "cancelled")
CUSTOMERS: Final = ("Alder Ltd", "Birch & Sons", "Cedar Works", "Dogwood Inc", "Elm Trading", "Fir Foods", "Gorse Co")

SheetId = Annotated[str, Field(description="The sheet's id, from list_sheets; `abc123` has the orders", min_length=1)]
Cell = str | int | float | bool | None

server = MCPServer("sheets", instructions="Spreadsheets. Rows are objects, whose keys are the headings.")
_appended: dict[str, list[dict[str, Cell]]] = {}
_lock = threading.Lock()


class Sheet(BaseModel):
    """What a sheet is."""

    id: str
    title: str
    rows: int = Field(description="How many it has, without the headings")
    headings: list[str]


class Appended(BaseModel):
    """What became of rows that were appended."""

    appended: int
    rows: int = Field(description="How many the sheet has now")


@cache
def orders() -> tuple[dict[str, Cell], ...]:
    """The orders, always the same."""
    numbers = dice("orders")
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


def rows_of(sheet_id: str) -> list[dict[str, Cell]]:
    """A sheet's rows; ToolError where there is no such sheet."""
    if sheet_id == ORDERS:
        return [*orders(), *_appended.get(sheet_id, [])]
    if sheet_id in _appended:
        return list(_appended[sheet_id])
    raise ToolError(f"there is no sheet {sheet_id!r}; list_sheets has all")


@server.tool(annotations=READS)
def list_sheets() -> list[Sheet]:
    """The sheets, with their headings."""
    with _lock:
        others = {name: list(rows) for name, rows in _appended.items() if name != ORDERS}
        size = len(rows_of(ORDERS))
    found = [Sheet(id=ORDERS, title="Orders 2026", rows=size, headings=list(orders()[0]))]
    return found + [
        Sheet(id=name, title=name, rows=len(rows), headings=list(rows[0]) if rows else [])
        for name, rows in others.items()
    ]


@server.tool(annotations=READS)
def get_sheet(
    sheet_id: SheetId,
    offset: Annotated[int, Field(ge=0, description="Rows to leave out at the beginning")] = 0,
    limit: Annotated[int | None, Field(ge=1, description="Most rows to return; all by default")] = None,
) -> list[dict[str, Cell]]:
    """All rows of a sheet, as objects by heading. The sheet of orders has 10,000 rows: filter them in code."""
    with _lock:
        rows = rows_of(sheet_id)
    return rows[offset:] if limit is None else rows[offset : offset + limit]


@server.tool(annotations=ADDS)
def append_rows(
    sheet_id: Annotated[
        str, Field(description="The sheet's id; a new one makes a new sheet", pattern=r"^[\w-]{1,64}$")
    ],
    rows: Annotated[list[dict[str, Cell]], Field(min_length=1, max_length=1000, description="Objects by heading")],
) -> Appended:
    """Appends rows at the end of a sheet."""
    with _lock:
        if sum(len(each) for each in _appended.values()) + len(rows) > MAX_APPENDED:
            raise ToolError(f"no more than {MAX_APPENDED} rows can be appended")
        _appended.setdefault(sheet_id, []).extend(rows)
        return Appended(appended=len(rows), rows=len(rows_of(sheet_id)))


if __name__ == "__main__":
    run(server)
