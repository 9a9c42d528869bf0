"""Requests to a model's API that are sent again, with a line about each delay."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from mcp_exec_client.agent.providers.model import PassText
from mcp_exec_common.util.backoff import delay_after

FIRST_DELAY: Final = 0.5
_LAST_DELAY: Final = 8.0
_LONGEST_ASKED: Final = 60.0
"""Longest delay that an API may ask for; a longer one is replaced by the usual delay."""
_PASSING: Final = (408, 409, 429)
"""Statuses below 500 that a repeated request may not get."""
_MAX_LESSONS: Final = 8
"""Most refusals of one request that are answered by another form of it."""
_T = TypeVar("_T")
_L = TypeVar("_L")


async def repeat_learning(
    send: Callable[[], Awaitable[_T]],
    *,
    find_lesson: Callable[[Any], _L | None],
    learn: Callable[[_L, Any], Awaitable[bool]],
    is_final: Callable[[Any], bool],
    retries: int,
    failures: tuple[type[Exception], ...],
    describe: Callable[[Any], str],
    notify: PassText,
) -> _T:
    """Return what `send` returns, as `repeat` does. A refusal that teaches another form is followed by that form.

    `learn` takes the lesson and the refusal, and returns whether there is another form.
    """
    learned = 0
    while True:
        try:
            return await repeat(
                send,
                retries=retries,
                failures=failures,
                is_final=lambda error: is_final(error) or find_lesson(error) is not None,
                describe=describe,
                notify=notify,
            )
        except failures as error:
            learned += 1
            lesson = find_lesson(error)
            if lesson is None or learned > _MAX_LESSONS or not await learn(lesson, error):
                raise


async def repeat(
    send: Callable[[], Awaitable[_T]],
    *,
    retries: int,
    failures: tuple[type[Exception], ...],
    is_final: Callable[[Any], bool],
    describe: Callable[[Any], str],
    notify: PassText,
) -> _T:
    """Return what `send` returns. One of the `failures` that may pass is followed by another attempt.

    The API decides by its headers whether and when. The last failure is raised.
    """
    failed = 0
    while True:
        try:
            return await send()
        except failures as error:
            failed += 1
            response = getattr(error, "response", None)
            headers: Mapping[str, str] = {} if response is None else response.headers
            if failed > retries or is_final(error) or not _may_pass(error, headers):
                raise
            delay = _read_delay(headers) or delay_after(failed, first=FIRST_DELAY, last=_LAST_DELAY)
            delay *= 1 + 0.25 * random.random()  # spreads the requests of many agents
            await notify(f"{describe(error)}; again in {max(delay, 0.1):.1f} s")
            await asyncio.sleep(delay)


def _may_pass(error: Any, headers: Mapping[str, str]) -> bool:
    status = getattr(error, "status_code", None)
    if (asked := headers.get("x-should-retry")) in ("true", "false"):
        return asked == "true"
    return status is None or status in _PASSING or status >= 500


def _read_delay(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that an API asks for. A date, which some send, gets the usual delay."""
    for name, factor in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * factor
        except ValueError:
            continue
        if 0 < seconds <= _LONGEST_ASKED:
            return seconds
    return None
