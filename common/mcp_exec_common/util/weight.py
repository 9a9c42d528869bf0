"""Memory that a JSON value takes."""

from sys import getsizeof
from typing import Any

_SCALAR_BYTES = 32
_ENTRY_BYTES = 16
"""Reference from a container, and unused space."""


def weigh(value: Any, *, limit: int) -> int:
    """Return the bytes of memory of a parsed JSON value, or a number above `limit` if they are more.

    Takes time for at most `limit` bytes.
    """
    total, remaining = 0, [value]
    while remaining and total <= limit:
        item = remaining.pop()
        if isinstance(item, str):
            total += getsizeof(item)
        elif isinstance(item, dict):
            total += getsizeof(item) + _ENTRY_BYTES * len(item)
            if total <= limit:
                remaining.extend(item)
                remaining.extend(item.values())
        elif isinstance(item, list):
            total += getsizeof(item) + _ENTRY_BYTES * len(item)
            if total <= limit:
                remaining.extend(item)
        else:
            total += _SCALAR_BYTES
    return total
