import asyncio

import pytest

from mcp_exec_common.util.ttl_cache import CoalescingCache


class Source:
    """Counts its loads; each ends once `released` is set."""

    def __init__(self, value: str | None = "yes") -> None:
        self.value, self.loads = value, 0
        self.released, self.started = asyncio.Event(), asyncio.Event()
        self.released.set()

    async def __call__(self) -> str | None:
        self.loads += 1
        self.started.set()
        await self.released.wait()
        if self.value == "error":
            raise ValueError("no value")
        return self.value


@pytest.mark.parametrize(("value", "seconds"), [("yes", 60.0), ("no", 5.0), (None, 1.0)])
async def test_a_value_is_good_for_its_time_to_live(value: str | None, seconds: float) -> None:
    now = [0.0]
    lifetimes = {"yes": 60.0, "no": 5.0, None: 1.0}
    cache = CoalescingCache[str, str | None](ttl_seconds=lambda value: lifetimes[value], clock=lambda: now[0])
    source = Source(value)
    for moment, loads in ((0.0, 1), (seconds - 0.1, 1), (seconds, 2)):
        now[0] = moment
        assert await cache.get("key", source) == value
        assert source.loads == loads


async def test_concurrent_callers_of_a_key_share_one_load() -> None:
    cache, source = CoalescingCache[str, str | None](ttl_seconds=lambda _: 60), Source()
    source.released.clear()
    callers = [asyncio.create_task(cache.get("key", source)) for _ in range(10)]
    await source.started.wait()
    callers[0].cancel()
    source.released.set()
    values = await asyncio.gather(*callers, return_exceptions=True)
    assert isinstance(values[0], asyncio.CancelledError)
    assert values[1:] == ["yes"] * 9
    assert source.loads == 1


async def test_an_error_reaches_all_callers_and_is_not_stored() -> None:
    cache, source = CoalescingCache[str, str | None](ttl_seconds=lambda _: 60), Source("error")
    values = await asyncio.gather(*(cache.get("key", source) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(value, ValueError) for value in values)
    source.value = "yes"
    assert await cache.get("key", source) == "yes"


async def test_the_least_recently_used_value_makes_room() -> None:
    cache, source = CoalescingCache[str, str | None](ttl_seconds=lambda _: 60, max_size=2), Source()
    for key in ("a", "b", "a", "c"):
        await cache.get(key, source)
    assert source.loads == 3
    await cache.get("a", source)
    assert source.loads == 3
    await cache.get("b", source)
    assert source.loads == 4


@pytest.mark.parametrize("seconds", [0.0, -1.0])
async def test_a_value_without_time_to_live_is_not_stored(seconds: float) -> None:
    cache, source = CoalescingCache[str, str | None](ttl_seconds=lambda _: seconds), Source()
    await cache.get("key", source)
    await cache.get("key", source)
    assert source.loads == 2
