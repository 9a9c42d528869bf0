"""Threads for the work on large calls, which would delay all other calls on the event loop.

The interpreter runs one thread at a time and changes between them after a few bytecodes, so that the loop continues
meanwhile. A single long step in C would hold the loop up in any thread: `api/call_body.py` bounds these.
"""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

Result = TypeVar("Result")

INLINE_BYTES: Final = 4 * 1024
"""Bytes of a body up to which its work is done on the loop: the change of threads takes longer, mostly."""
SWITCH_SECONDS: Final = 0.001
"""How long the loop waits for the interpreter while a thread works; Python's own value is 0.005."""
_WORKERS: Final = 2


class Offload:
    """Runs the work on large calls in threads."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(max_workers=_WORKERS, thread_name_prefix="large calls")

    async def run(self, work: Callable[[], Result], *, size: int) -> Result:
        """Run the work on `size` bytes: here if they are few, else in a thread."""
        if size <= INLINE_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """Stop the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def shorten_switch_interval() -> None:
    """Let the event loop interrupt threads earlier."""
    sys.setswitchinterval(SWITCH_SECONDS)
