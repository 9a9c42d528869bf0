"""Clock of the run. It ends the run in time, and stands still while the broker confirms that a call waits.

The operator sends the broker's measure as an extension of the time limit. The runner's word that a call waits, which
code can forge, at most postpones the end for a moment, once, until that measure arrives.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from mcp_exec_sandbox.supervisor.json_object import InvalidRequest, parse_body

MAX_EXTENSION_SECONDS = 3600
UNCONFIRMED_SECONDS = 2.0
"""Time that waits can postpone the end by if no extension has confirmed them, in all of the run."""


@dataclass(frozen=True, kw_only=True)
class ExtensionRequest:
    """The checked body of `PUT /v1/execution/extension`: the execution, and its time of waiting in all."""

    id: str
    seconds: float

    @classmethod
    def from_body(cls, body: bytes) -> "ExtensionRequest":
        """Parse the body.

        Raises:
            InvalidRequest: it is not a JSON object, or a field is missing, unknown or invalid.
        """
        fields = parse_body(body, ("id", "seconds"))
        identifier = fields.get("id")
        if not isinstance(identifier, str):
            raise InvalidRequest("id: must be a string")
        return cls(id=identifier, seconds=_parse_seconds(fields.get("seconds")))


class RunClock:
    """Timer of one run."""

    def __init__(self, *, timeout_seconds: float, on_timeout: Callable[[], None]) -> None:
        self._timeout_seconds = timeout_seconds
        self._on_timeout = on_timeout
        self._started = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_unconfirmed = False
        self._unconfirmed_left = UNCONFIRMED_SECONDS
        self.extension_seconds = 0.0
        """Seconds that waits add to the time limit."""

    def start(self) -> None:
        """Start the clock."""
        self._started = asyncio.get_running_loop().time()
        self._schedule()

    def stop(self) -> None:
        """Stop the clock for good."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def expect_extension(self) -> None:
        """Note that a call is said to wait."""
        self._is_unconfirmed = True

    def extend(self, seconds: float) -> None:
        """Let the run take so many seconds beyond its time limit, in all. Fewer than before end it earlier."""
        self._is_unconfirmed = False
        self.extension_seconds = seconds
        if self._timer is not None:
            self._timer.cancel()
            self._schedule()

    def _schedule(self) -> None:
        end = self._started + self._timeout_seconds + self.extension_seconds
        self._timer = asyncio.get_running_loop().call_at(end, self._expire)

    def _expire(self) -> None:
        if self._is_unconfirmed and self._unconfirmed_left:
            delay, self._unconfirmed_left = self._unconfirmed_left, 0.0
            self._timer = asyncio.get_running_loop().call_later(delay, self._expire)
            return
        self._timer = None
        self._on_timeout()


def _parse_seconds(value: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= MAX_EXTENSION_SECONDS:
        return float(value)
    raise InvalidRequest(f"seconds: must be a number from 0 to {MAX_EXTENSION_SECONDS}")
