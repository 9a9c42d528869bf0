"""Waits of tests. Each has a limit, and a failure shows the state at that time."""

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tests.support.constants import DEADLINE
from tests.support.pace import paced

T = TypeVar("T")


async def until(holds: Callable[[], T], *, what: str = "", state: Callable[[], Any] | None = None) -> T:
    """Return the first true value of `holds`.

    It looks once a millisecond: the state is of many parts, which have no event in common. Raises AssertionError with
    `what` (or the source of `holds`), its last value and `state()` after DEADLINE seconds.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + DEADLINE
    while not (value := holds()):
        if loop.time() > end:
            raise AssertionError(describe(holds, what=what, value=value, seconds=DEADLINE, state=state))
        await asyncio.sleep(0.001)
    return value


async def until_answered(ask: Callable[[], Awaitable[T | None]], *, every: float, seconds: float = DEADLINE) -> T:
    """Return the first answer that is not None, for what is known only by asking. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while True:
            if (answer := await ask()) is not None:
                return answer
            await asyncio.sleep(every)


def eventually(holds: Callable[[], T], *, seconds: float = 30, every: float = 0.1, what: str = "") -> T:
    """Return the first true value of `holds`, for tests without an event loop; raise AssertionError like `until`."""
    end = time.monotonic() + paced(seconds)
    pause = threading.Event()
    while not (value := holds()):
        if time.monotonic() > end:
            raise AssertionError(describe(holds, what=what, value=value, seconds=seconds))
        pause.wait(every)
    return value


def describe(
    holds: Callable[[], Any], *, what: str, value: Any, seconds: float, state: Callable[[], Any] | None = None
) -> str:
    """Return the message of a wait that failed."""
    try:
        source = what or " ".join(inspect.getsource(holds).split())
    except (OSError, TypeError):
        source = repr(holds)
    return f"{source}: still {value!r} after {seconds} s" + (f"\n{state()}" if state else "")
