"""Limits of the benchmarks' waits. A wait that reaches its limit names what it waited for."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class WaitTimedOut(TimeoutError):
    """Something did not happen in time. The text is one sentence for the user of the benchmark."""


@asynccontextmanager
async def within(seconds: float, what: str, *, state: Callable[[], object] | None = None) -> AsyncIterator[None]:
    """Cancel the body after `seconds`, and raise WaitTimedOut with `what` and the value of `state` at that time.

    An earlier TimeoutError of the body's own passes unchanged.
    """
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        found = "" if state is None else f", but had {state()}"
        raise WaitTimedOut(f"waited {seconds:g} s for {what}{found}") from None
