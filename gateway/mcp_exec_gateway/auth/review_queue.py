"""Queue of reviews at the API server, bounded in concurrency, length and time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_gateway.http.problems import unavailable

MAX_RUNNING: Final = 16
MAX_WAITING: Final = 128
_SECONDS: Final = 10.0
"""Maximum time of one review, its wait and its retries included."""


@dataclass(kw_only=True)
class ReviewQueue:
    """Reviews of one kind. Those of tokens cannot delay those of access, because each kind has its own queue."""

    max_running: int = MAX_RUNNING
    max_waiting: int = MAX_WAITING
    seconds: float = _SECONDS
    count: int = field(default=0, init=False)
    """Reviews that run or wait."""
    _slots: asyncio.Semaphore = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.max_running)

    @asynccontextmanager
    async def enter(self) -> AsyncIterator[None]:
        """Run the body as one review. Raises HttpProblem, a 503, if the queue is full or the time is over."""
        if self.count >= self.max_running + self.max_waiting:
            raise unavailable(f"{self.count} tokens wait for a review, which is the limit of this replica")
        self.count += 1
        try:
            async with asyncio.timeout(self.seconds) as limit, self._slots:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise unavailable("the API server reviews tokens too slowly at the moment") from error
        finally:
            self.count -= 1
