"""The value of the last expression is the result, as JSON."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal


@dataclass
class Expense:
    day: date
    amount: Decimal
    tags: set


[Expense(date(2026, 10, 1), Decimal("12.50"), {"travel"}), {"user": user_id, "big": 2**60}]
