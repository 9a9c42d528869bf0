"""Limits of time that fit the machine: TIME_FACTOR says how many times slower it is than one of factor 1."""

import os
from typing import Final

FACTOR: Final = max(1.0, float(os.environ.get("TIME_FACTOR", "1")))


def paced(seconds: float) -> float:
    """Return the limit of a wait on this machine. What is asserted of the product's own times is no such limit."""
    return seconds * FACTOR
