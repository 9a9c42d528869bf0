"""Background tasks of a process."""

import asyncio
import logging

import pytest

from mcp_exec_common.process.tasks import TaskRegistry


async def test_a_task_that_fails_is_logged_and_reported_and_ends_no_other(caplog: pytest.LogCaptureFixture) -> None:
    failed: list[str] = []
    tasks, released = TaskRegistry(on_failure=failed.append), asyncio.Event()

    async def fail() -> None:
        raise ValueError("so it is")

    other = tasks.spawn(released.wait(), name="other")
    with caplog.at_level(logging.ERROR):
        await asyncio.wait({tasks.spawn(fail(), name="bad")})
    assert (failed, len(tasks), other.done()) == (["bad"], 1, False)
    assert "task 'bad' failed: so it is" in caplog.text
    released.set()
    await other


async def test_tasks_end_within_the_grace_period_or_are_cancelled() -> None:
    tasks, released = TaskRegistry(), asyncio.Event()
    quick = tasks.spawn(released.wait(), name="quick")
    slow = tasks.spawn(asyncio.Event().wait(), name="slow")
    released.set()
    await tasks.close(grace_seconds=0.01)
    assert (quick.cancelled(), slow.cancelled(), len(tasks)) == (False, True, 0)


async def test_after_all_were_cancelled_no_later_task_begins() -> None:
    tasks, began = TaskRegistry(), asyncio.Event()

    async def work() -> None:
        began.set()

    running = tasks.spawn(asyncio.Event().wait(), name="running")
    tasks.cancel_all()
    later = tasks.spawn(work(), name="later")
    await tasks.close()
    assert (running.cancelled(), later.cancelled(), began.is_set()) == (True, True, False)
