"""Removal of duplicate rows."""

import json
from typing import Literal


def run(
    rows: list[dict],
    keys: list[str] | None = None,
    keep: Literal["first", "last"] = "first",
    exact: bool = False,
) -> dict:
    """Return the rows without duplicates, the number of removed ones, and the largest groups of duplicates.

    Args:
        rows: the rows, each an object of values by column.
        keys: columns that make a row a duplicate of another; all columns by default.
        keep: which row of a group is kept.
        exact: whether texts that differ only in case or spaces are different.
    """
    if missing := [name for name in keys or () if rows and not any(name in row for row in rows)]:
        raise ValueError(f"no row has the columns {missing}; the first row has {list(rows[0])[:50]}")
    groups: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        values = [row.get(name) for name in keys] if keys else row
        groups.setdefault(json.dumps(_fold(values, exact), sort_keys=True, default=str), []).append(number)
    kept = sorted(numbers[0 if keep == "first" else -1] for numbers in groups.values())
    largest = sorted((numbers for numbers in groups.values() if len(numbers) > 1), key=len, reverse=True)[:10]
    return {
        "rows": [rows[number] for number in kept],
        "removed": len(rows) - len(kept),
        "groups": [{"rows": len(numbers), "example": rows[numbers[0]]} for numbers in largest],
    }


def _fold(value: object, exact: bool) -> object:
    if isinstance(value, dict):
        return {name: _fold(each, exact) for name, each in value.items()}
    if isinstance(value, list):
        return [_fold(each, exact) for each in value]
    return " ".join(value.split()).casefold() if isinstance(value, str) and not exact else value
