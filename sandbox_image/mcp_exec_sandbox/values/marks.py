"""Marks of forms that plain Python values do not have: nothing known, a value that is not there, keys that repeat."""

from collections.abc import Iterable, Sequence
from typing import Any

UNKNOWN = object()
"""Returned for values that have no simpler form."""


class Missing:
    """A library's mark of a value that is not there."""

    def __init__(self, name: str) -> None:
        self.name = name


class Pairs:
    """An object whose keys may repeat."""

    def __init__(self, items: Iterable[tuple[Any, Any]]) -> None:
        self.items = items


class LabelledRows:
    """LabelledRows with the same labels, which may repeat."""

    def __init__(self, labels: Sequence[Any], rows: Iterable[Sequence[Any]], *, why: str = "") -> None:
        self.labels = labels
        self.rows = rows
        self.why = why
        """Why the value is a list of records and no object, if its other values are objects."""
