"""Deferral of pod churn while many status writes are in flight."""

import asyncio
from contextlib import ExitStack

from tests.support.clock import Clock

from mcp_exec_operator.cluster.kube.api import WritePriority


def begin_writes(priority: WritePriority, count: int) -> ExitStack:
    stack = ExitStack()
    for _ in range(count):
        stack.enter_context(priority.writing())
    return stack


async def test_a_few_writes_defer_nothing() -> None:
    priority = WritePriority()
    with begin_writes(priority, 8):
        assert priority.defer_seconds() == 0
        await asyncio.wait_for(priority.wait_until_idle(), 1)


async def test_many_writes_defer_replacements_until_few_are_left() -> None:
    priority = WritePriority()
    rest = begin_writes(priority, 8)
    with begin_writes(priority, 1):
        assert priority.defer_seconds() > 0
        waiting = asyncio.create_task(priority.wait_until_idle())
        await asyncio.sleep(0)
        assert not waiting.done()
    await asyncio.wait_for(waiting, 1)
    assert priority.defer_seconds() == 0
    rest.close()


async def test_a_load_that_never_ends_defers_them_for_a_bounded_time_only() -> None:
    clock = Clock()
    priority = WritePriority(clock=clock)
    with begin_writes(priority, 100):
        assert priority.defer_seconds() == 2.0
        clock.now += 1.5
        assert priority.defer_seconds() == 0.5
        clock.now += 1.0
        assert priority.defer_seconds() == 0.0
        await asyncio.wait_for(priority.wait_until_idle(), 1)
