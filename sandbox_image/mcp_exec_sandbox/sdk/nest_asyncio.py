"""Replacement of `nest_asyncio`, which code applies by habit: `asyncio.run` works inside a running loop here."""

from typing import Any


def apply(loop: Any = None) -> None:
    """Do nothing."""
