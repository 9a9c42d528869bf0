"""Places for requests: one namespace fills only a part."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from mcp_exec_broker.core.access.limiters import SharedPlaces


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_namespace_that_fills_its_part_leaves_the_rest_to_others() -> None:
    places = SharedPlaces(total=4, of_namespace=2)
    async with AsyncExitStack() as held:
        for _ in range(2):
            await held.enter_async_context(places.hold("busy"))
        waiting = [asyncio.create_task(held.enter_async_context(places.hold("busy"))) for _ in range(50)]
        await settle()
        assert not any(task.done() for task in waiting)
        async with asyncio.timeout(1), places.hold("other"), places.hold("other"):
            pass
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_all_namespaces_together_fill_no_more_than_all_places() -> None:
    places = SharedPlaces(total=2, of_namespace=2)
    async with places.hold("a"), places.hold("b"):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), places.hold("c"):
                pass
    async with asyncio.timeout(1), places.hold("c"), places.hold("c"):
        pass


async def test_nothing_is_kept_of_namespaces_that_hold_no_place() -> None:
    places = SharedPlaces(total=1, of_namespace=1)
    for number in range(5):
        async with places.hold(f"n-{number}"):
            pass
    assert len(places) == 0
