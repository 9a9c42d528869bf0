"""Demo server: expenses of people, a thousand rows per person."""

import threading
from datetime import date, timedelta
from functools import lru_cache
from typing import Annotated, Final, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

from mcp_exec_servers.command import ADDS, READS, run, seeded_random

ROWS: Final = 1000
FIRST: Final = date(2024, 10, 1)
DAYS: Final = 761
"""Number of days: until 2026-10-31."""
MAX_ADDED: Final = 1000
"""Most expenses that can be added until the server restarts."""

Category = Literal["fuel", "food", "camping", "maintenance", "shopping"]
MERCHANTS: Final[dict[Category, tuple[str, ...]]] = {
    "fuel": ("Desert Fuel", "Pilot Stop", "Route 9 Gas"),
    "food": ("Blue Plate Diner", "Corner Market", "Taco Loco"),
    "camping": ("Pine Flat Camp", "River Bend RV", "Mesa View"),
    "maintenance": ("Tire Barn", "RV Doctor"),
    "shopping": ("Outdoor Depot", "General Store"),
}
LARGEST: Final[dict[Category, float]] = {
    "fuel": 180, "food": 90, "camping": 120, "maintenance": 900, "shopping": 260
}  # fmt: skip

Day = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$", description="YYYY-MM-DD")]
User = Annotated[str, Field(min_length=1, max_length=64, description="The person's id, such as `u-42`")]

server = MCPServer("expenses", instructions="Expenses of people: a thousand rows per person.")
_added: list["Expense"] = []
_lock = threading.Lock()


class Expense(BaseModel):
    """One expense of a person."""

    id: str
    user_id: str
    date: Day
    amount: float = Field(description="US dollars")
    category: Category
    merchant: str


@lru_cache(maxsize=64)
def generate_expenses(user_id: str) -> tuple[Expense, ...]:
    """Return the generated expenses of a person, oldest first; always the same."""
    numbers = seeded_random("expenses", user_id)
    days = sorted(numbers.randrange(DAYS) for _ in range(ROWS))
    rows = []
    for index, day in enumerate(days):
        category = numbers.choice(list(MERCHANTS))
        # small amounts are more frequent
        amount = round(2 + (LARGEST[category] - 2) * numbers.random() ** 3, 2)
        rows.append(
            Expense(
                id=f"{user_id}-{index:04}",
                user_id=user_id,
                date=(FIRST + timedelta(days=day)).isoformat(),
                amount=amount,
                category=category,
                merchant=numbers.choice(MERCHANTS[category]),
            )
        )
    return tuple(rows)


def _check_day(text: str | None, name: str) -> str | None:
    if text is not None:
        try:
            date.fromisoformat(text)
        except ValueError as error:
            raise ToolError(f"{name}: {error}") from error
    return text


@server.tool(annotations=READS)
def list_categories() -> list[Category]:
    """List the categories of expenses."""
    return list(MERCHANTS)


@server.tool(annotations=READS)
def get_expenses(
    user_id: User,
    since: Annotated[Day | None, Field(description="The first day, YYYY-MM-DD")] = None,
    until: Annotated[Day | None, Field(description="The last day, YYYY-MM-DD")] = None,
    category: Annotated[Category | None, Field(description="Only this category")] = None,
) -> list[Expense]:
    """Return the expenses of a person, oldest first: all thousand rows unless days or a category are given."""
    first, last = _check_day(since, "since"), _check_day(until, "until")
    with _lock:
        added = [expense for expense in _added if expense.user_id == user_id]
    return [
        expense
        for expense in sorted([*generate_expenses(user_id), *added], key=lambda expense: (expense.date, expense.id))
        if (first is None or expense.date >= first)
        and (last is None or expense.date <= last)
        and category in (None, expense.category)
    ]


@server.tool(annotations=ADDS)
def add_expense(
    user_id: User,
    amount: Annotated[float, Field(gt=0, le=100_000, description="US dollars")],
    category: Category,
    merchant: Annotated[str, Field(min_length=1, max_length=100, description="Who was paid")],
    date: Day,
) -> Expense:
    """Add an expense."""
    _check_day(date, "date")
    with _lock:
        if len(_added) >= MAX_ADDED:
            raise ToolError(f"no more than {MAX_ADDED} expenses can be added")
        number = f"{user_id}-new-{len(_added):04}"
        expense = Expense(
            id=number, user_id=user_id, date=date, amount=round(amount, 2), category=category, merchant=merchant
        )
        _added.append(expense)
        return expense


if __name__ == "__main__":
    run(server)
