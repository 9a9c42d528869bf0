"""Errors of an agent's task."""

from typing import Literal

LimitName = Literal["turns", "tokens", "money", "time"]


class AgentError(Exception):
    """Failure of a task. The text says why."""


class ModelError(AgentError):
    """A request that the model's API did not answer completely."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable
        """Whether the same request may succeed: the answer was cut off, or the API was overloaded in the middle."""


class LimitReached(AgentError):
    """A task that reached one of its limits; `limit` says which."""

    def __init__(self, limit: LimitName, message: str) -> None:
        super().__init__(message)
        self.limit = limit
