"""What replacements of pods are put off for."""

import asyncio
from contextlib import ExitStack

from mcp_exec_operator.kube.write_priority import Claims


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def begun(claims: Claims, count: int) -> ExitStack:
    stack = ExitStack()
    for _ in range(count):
        stack.enter_context(claims.one())
    return stack


async def test_a_few_writes_put_nothing_off() -> None:
    claims = Claims()
    with begun(claims, 8):
        assert claims.puts_off() == 0
        await asyncio.wait_for(claims.settled(), 1)


async def test_many_writes_put_replacements_off_until_few_are_left() -> None:
    claims = Claims()
    rest = begun(claims, 8)
    with begun(claims, 1):
        assert claims.puts_off() > 0
        waiting = asyncio.create_task(claims.settled())
        await asyncio.sleep(0)
        assert not waiting.done()
    await asyncio.wait_for(waiting, 1)
    assert claims.puts_off() == 0
    rest.close()


async def test_a_load_that_never_ends_puts_them_off_for_a_bounded_time_alone() -> None:
    clock = Clock()
    claims = Claims(clock=clock)
    with begun(claims, 100):
        assert claims.puts_off() == 2.0
        clock.now += 1.5
        assert claims.puts_off() == 0.5
        clock.now += 1.0
        assert claims.puts_off() == 0.0
        await asyncio.wait_for(claims.settled(), 1)
