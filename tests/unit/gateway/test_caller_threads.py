"""Work in threads: one of each caller at a time, a bound on what waits, and turns that a cancellation does not free."""

import asyncio
import threading
from collections.abc import Callable

import pytest
from tests.support.constants import DEADLINE
from tests.support.until import until

from mcp_exec_gateway.core.http.limits import CallerThreads
from mcp_exec_gateway.core.http.problems import HttpProblem


class Work:
    """Work that lasts until it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.running = self.most = 0
        self.lock = threading.Lock()

    def __call__(self) -> str:
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        assert self.released.wait(DEADLINE)
        with self.lock:
            self.running -= 1
        return "done"


async def test_work_of_one_caller_is_done_one_after_the_other_and_that_of_others_meanwhile() -> None:
    threads, slow = CallerThreads(), Work()
    waiting = [asyncio.ensure_future(threads.run("a", slow)) for _ in range(10)]
    await until(lambda: slow.running)
    assert await threads.run("b", lambda: threading.current_thread() is not threading.main_thread())
    slow.released.set()
    assert await asyncio.gather(*waiting) == ["done"] * 10
    assert slow.most == 1
    assert not threads.waiting


async def test_a_caller_whose_work_waits_is_refused_more_and_others_are_not() -> None:
    threads, slow = CallerThreads(), Work()
    waiting = [asyncio.ensure_future(threads.run("a", slow)) for _ in range(64)]
    await until(lambda: threads.waiting == 64)
    with pytest.raises(HttpProblem, match="a has 64 open searches of tools and skills, and 64 are allowed") as refused:
        await threads.run("a", lambda: None)
    assert refused.value.status == 429
    assert await threads.run("b", lambda: 1) == 1
    slow.released.set()
    await asyncio.gather(*waiting)


async def test_cancelled_work_keeps_the_turn_until_its_thread_has_ended() -> None:
    threads, slow = CallerThreads(), Work()
    first = asyncio.ensure_future(threads.run("a", slow))
    await until(lambda: slow.running)
    first.cancel()
    second = asyncio.ensure_future(threads.run("a", slow))
    await until(lambda: threads.waiting == 2)
    for _ in range(10):
        await asyncio.to_thread(lambda: None)
    assert slow.most == 1
    slow.released.set()
    assert await second == "done"
    with pytest.raises(asyncio.CancelledError):
        await first
    assert slow.most == 1


async def test_work_that_fails_raises_its_error() -> None:
    def fail() -> None:
        raise ValueError("limit")

    work: Callable[[], None] = fail
    with pytest.raises(ValueError, match="limit"):
        await CallerThreads().run("a", work)
