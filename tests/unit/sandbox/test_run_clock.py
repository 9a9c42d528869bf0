"""The clock of a run: what stops it, and what does not."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.support.clock import Clock

from mcp_exec_api.constants import MAX_APPROVAL_SECONDS
from mcp_exec_sandbox.supervisor.execution.watchdog import MAX_EXTENSION_SECONDS, UNCONFIRMED_SECONDS, RunClock


class Timed:
    """A run of ten seconds on a loop whose time the test sets."""

    def __init__(self, loop: asyncio.AbstractEventLoop, time: Clock) -> None:
        self.is_over = False
        self.clock = RunClock(timeout_seconds=10, on_timeout=self._end)
        self._loop = loop
        self._time = time
        self.clock.start()

    def _end(self) -> None:
        self.is_over = True

    async def passes(self, seconds: float) -> bool:
        """Let time pass, and return whether the run is over."""
        self._time.now += seconds
        for _ in range(2):
            turn = asyncio.Event()
            self._loop.call_soon(turn.set)
            await turn.wait()
        return self.is_over


@pytest.fixture
async def run(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Timed]:
    loop, time = asyncio.get_running_loop(), Clock()
    with monkeypatch.context() as patch:
        patch.setattr(loop, "time", time)
        timed = Timed(loop, time)
        yield timed
        timed.clock.stop()


def test_the_longest_extension_is_the_longest_wait() -> None:
    assert MAX_EXTENSION_SECONDS == MAX_APPROVAL_SECONDS


async def test_a_run_ends_at_its_time_limit(run: Timed) -> None:
    assert not await run.passes(9.9)
    assert await run.passes(0.2)


async def test_the_time_of_confirmed_waits_does_not_count(run: Timed) -> None:
    await run.passes(5)
    run.clock.extend(600)  # the call may wait for so long
    assert not await run.passes(100)
    run.clock.extend(100)  # it was approved
    assert not await run.passes(4.9)
    assert await run.passes(0.2)


async def test_a_wait_that_ended_long_ago_ends_the_run_at_once(run: Timed) -> None:
    run.clock.extend(600)
    assert not await run.passes(300)
    run.clock.extend(20)
    assert await run.passes(0)


async def test_the_runners_word_postpones_the_end_for_a_moment_and_once(run: Timed) -> None:
    run.clock.expect_extension()
    assert not await run.passes(10.1)
    run.clock.expect_extension()
    assert not await run.passes(UNCONFIRMED_SECONDS - 0.2)
    assert await run.passes(0.2)


async def test_a_wait_that_the_broker_does_not_confirm_postpones_nothing(run: Timed) -> None:
    run.clock.expect_extension()
    run.clock.extend(0)
    assert not await run.passes(9.9)
    assert await run.passes(0.2)


async def test_a_wait_that_is_confirmed_late_is_in_time(run: Timed) -> None:
    run.clock.expect_extension()
    assert not await run.passes(11)
    run.clock.extend(600)
    assert not await run.passes(500)
    run.clock.extend(502)
    assert not await run.passes(0.9)
    assert await run.passes(0.2)


async def test_an_extension_after_the_end_changes_nothing(run: Timed) -> None:
    assert await run.passes(11)
    run.is_over = False
    run.clock.extend(600)
    assert not await run.passes(1000)
