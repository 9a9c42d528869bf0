"""Limits on concurrent calls and on the rate of a server."""

import asyncio

import pytest
from tests.support.clock import Clock
from tests.support.pace import paced

from mcp_exec_api.tool_server import ServerLimits
from mcp_exec_broker.core.access.limiters import FifoLimiter, ServerConcurrency
from mcp_exec_broker.core.errors import ErrorReason, ToolCallError

DEADLINE = paced(10)


async def test_a_place_goes_to_who_waits_longest_and_is_not_lost_with_who_gave_up() -> None:
    limiter, order = FifoLimiter(), list[int]()
    await limiter.acquire(1)

    async def wait(number: int) -> None:
        await limiter.acquire(1)
        order.append(number)
        limiter.release(1)

    tasks = [asyncio.create_task(wait(number)) for number in range(4)]
    await asyncio.wait(tasks, timeout=0)
    tasks[1].cancel()
    limiter.release(1)
    tasks[0].cancel()  # at the moment when it has the place
    async with asyncio.timeout(DEADLINE):
        await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [2, 3]
    assert limiter.is_idle


async def test_a_server_takes_so_many_calls_at_once_and_who_gives_up_takes_no_place() -> None:
    servers, limits, key = ServerConcurrency(), ServerLimits(concurrency=1), ("agents", "github")
    async with servers.acquire_slot(key, limits):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), servers.acquire_slot(key, limits):
                pass
        async with servers.acquire_slot(("agents", "other"), limits):
            pass
    async with asyncio.timeout(DEADLINE), servers.acquire_slot(key, limits):
        pass


async def test_a_server_takes_so_many_calls_a_minute() -> None:
    clock = Clock(0.0)
    servers, limits, key = ServerConcurrency(clock=clock), ServerLimits(calls_per_minute=2), ("agents", "github")
    for clock.now in (0.0, 10.0):
        async with servers.acquire_slot(key, limits):
            pass
    with pytest.raises(ToolCallError, match="the next one in 50 s") as raised:
        async with servers.acquire_slot(key, limits):
            pass
    assert raised.value.reason is ErrorReason.RATE_LIMITED
    clock.now = 60.0
    async with servers.acquire_slot(key, limits):
        pass
