"""Profile of a table."""

from collections import Counter
from statistics import fmean, median


def run(rows: list[dict], top: int = 5, max_columns: int = 100) -> dict:
    """Return the profile of a table: the number of rows, and what each column holds.

    Numbers have a range, mean and median; other values the first and the last in alphabetical order, which for dates
    is the earliest and the latest.

    Args:
        rows: the rows, each an object of values by column.
        top: number of the most frequent values that are listed.
        max_columns: maximum number of columns that are described; `other_columns` is the number of the others.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {str(name): _profile([row.get(name) for row in rows], top) for name in names[:max_columns]}
    return {"rows": len(rows), "columns": columns, "other_columns": len(names[max_columns:])}


def _profile(values: list, top: int) -> dict:
    present = [value for value in values if value is not None and value != ""]
    texts = Counter(str(value) for value in present)
    numbers = [number for value in present if (number := _to_number(value)) is not None]
    profile = {
        "missing": len(values) - len(present),
        "distinct": len(texts),
        "types": dict(Counter(type(value).__name__ for value in present)),
        "top": [[text[:80], count] for text, count in texts.most_common(top)],
    }
    if numbers and len(numbers) == len(present):
        profile |= {"min": min(numbers), "max": max(numbers), "mean": fmean(numbers), "median": median(numbers)}
    elif present:
        lengths = [len(str(value)) for value in present]
        profile |= {"first": min(texts)[:80], "last": max(texts)[:80]}
        profile |= {"shortest": min(lengths), "longest": max(lengths)}
    return profile


def _to_number(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) < float("inf") else None
