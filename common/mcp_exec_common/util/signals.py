"""Signals: how a part of a process reports to parts that are built after it and know it."""

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Signal(Generic[P]):
    """An event that others can connect to. Receivers are called in the order of their connection, and never wait."""

    def __init__(self) -> None:
        self._receivers: list[Callable[P, None]] = []

    def connect(self, receiver: Callable[P, None]) -> None:
        """Call a receiver with each event from now on."""
        self._receivers.append(receiver)

    def emit(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call all receivers."""
        for receiver in self._receivers:
            receiver(*args, **kwargs)
