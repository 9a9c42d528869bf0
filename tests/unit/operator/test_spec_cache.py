"""Specs of waiting executions, with an API server that counts what is read."""

import asyncio
from typing import Any, cast

import pytest

from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.core.executions.outcome import EndedBeforeRun, ExecutionGone
from mcp_exec_operator.core.executions.record import ExecutionRecord
from mcp_exec_operator.core.executions.specs import LARGE_BYTES, SpecCache, SpecInUse


class Api:
    """The API server's executions."""

    def __init__(self) -> None:
        self.items: dict[str, Object] = {}
        self.read: list[str] = []

    async def get_execution(self, namespace: str, name: str) -> Object | None:
        self.read.append(name)
        return self.items.get(name)

    def add(self, name: str, size: int = 100) -> ExecutionRecord:
        metadata = {"name": name, "namespace": "agents", "uid": name, "resourceVersion": "1", "generation": 1}
        self.items[name] = {
            "metadata": metadata | {"creationTimestamp": "2026-11-21T20:00:00Z"},
            "spec": {"code": "x" * size, "context": {}, "user": "u"},
        }
        return ExecutionRecord.from_object(self.items[name])


@pytest.fixture
def api() -> Api:
    return Api()


def build(api: Api, **limits: Any) -> SpecCache:
    return SpecCache(api=cast("OperatorApi", api), **limits)


async def read(cache: SpecCache, record: ExecutionRecord) -> Object:
    return await SpecInUse(cache=cache, record=record).read()


async def test_the_largest_specs_are_dropped_first_and_read_again(api: Api) -> None:
    cache = build(api, limit=1_000_000)
    small = [api.add(f"small-{number}") for number in range(50)]
    large = [api.add(f"large-{number}", 400_000) for number in range(5)]
    for record in [*small, *large]:
        cache.keep(record)
    assert all(record.spec is not None for record in small)
    assert [record.spec is None for record in large].count(True) == 3
    dropped = next(record for record in large if record.spec is None)
    assert await read(cache, dropped) == api.items[dropped.name]["spec"]
    assert api.read == [dropped.name]
    assert await read(cache, small[0]) == small[0].spec
    assert api.read == [dropped.name]


async def test_what_ended_takes_no_memory(api: Api) -> None:
    cache = build(api, limit=1_000_000)
    for number in range(300):
        cache.keep(record := api.add(f"e{number}", 400_000))
        cache.discard(record)
        cache.discard(record)
    kept = [api.add(f"kept-{number}", 400_000) for number in range(2)]
    for record in kept:
        cache.keep(record)
    assert [record.spec is None for record in kept] == [False, False]


async def test_large_specs_wait_for_each_other_and_small_ones_never_wait(api: Api) -> None:
    cache = build(api, in_use_limit=5 * LARGE_BYTES)
    first, second, small = api.add("first", LARGE_BYTES), api.add("second", LARGE_BYTES), api.add("small")
    for record in (first, second, small):
        cache.keep(record)
    held = SpecInUse(cache=cache, record=first)
    await held.read()
    waiting = asyncio.create_task(read(cache, second))
    assert await read(cache, small) == small.spec
    assert not waiting.done()
    held.release()
    held.release()
    assert await waiting == second.spec


async def test_a_cancelled_wait_leaves_its_memory_to_the_next(api: Api) -> None:
    cache = build(api, in_use_limit=5 * LARGE_BYTES)
    records = [api.add(f"e{number}", LARGE_BYTES) for number in range(3)]
    for record in records:
        cache.keep(record)
    held = SpecInUse(cache=cache, record=records[0])
    await held.read()
    cancelled = asyncio.create_task(read(cache, records[1]))
    next_one = asyncio.create_task(read(cache, records[2]))
    await asyncio.wait({cancelled, next_one}, timeout=0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    held.release()
    assert await next_one == records[2].spec


async def test_a_spec_that_changed_while_it_was_dropped_is_noticed(api: Api) -> None:
    cache = build(api, limit=1000)
    cache.keep(record := api.add("changed", 5000))
    assert record.spec is None
    changed = api.items["changed"]
    changed["spec"] = {**changed["spec"], "user": "another"}
    await read(cache, record)
    assert record.changed == ["user"]


async def test_a_deleted_execution_has_no_spec(api: Api) -> None:
    cache = build(api, limit=1000)
    cache.keep(record := api.add("deleted", 5000))
    del api.items["deleted"]
    with pytest.raises(ExecutionGone):
        await read(cache, record)


def test_a_record_keeps_neither_code_nor_output_nor_foreign_metadata(api: Api) -> None:
    api.add("e", 5000)
    body = api.items["e"]
    body["metadata"] |= {"managedFields": ["x" * 5000], "annotations": {"a": "x" * 5000}, "labels": {"b": "x" * 5000}}
    body["status"] = {"phase": "Running", "podName": "p", "output": {"stdout": "x" * 5000}}
    record = ExecutionRecord.from_object(body)
    record.discard_spec()
    assert len(str(vars(record))) < 3000
    assert (record.phase, record.pod_name) == ("Running", "p")


def use(api: Api, code: str = "print(1)", **limits: Any) -> tuple[SpecCache, ExecutionRecord]:
    record = api.add("used")
    api.items["used"]["spec"] = {"code": code}
    record = ExecutionRecord.from_object({**api.items["used"], "status": {"phase": "Pending"}})
    cache = build(api, **limits)
    cache.keep(record)
    return cache, record


async def test_a_spec_in_use_is_parsed_once_until_it_is_released(api: Api) -> None:
    cache, record = use(api)
    async with SpecInUse(cache=cache, record=record) as held:
        first = await held.load()
        assert await held.load() is first
        held.release()
        again = await held.load()
    assert (again, again is first) == (first, False)
    assert api.read == []


async def test_a_large_spec_in_use_is_released_at_the_end_of_its_context_and_for_waits(api: Api) -> None:
    cache, record = use(api, "#" * LARGE_BYTES, in_use_limit=1)
    waiting = SpecInUse(cache=cache, record=record)
    async with SpecInUse(cache=cache, record=record) as held:
        await held.load()
        loading = asyncio.create_task(waiting.load())
        await asyncio.wait({loading}, timeout=0)
        assert not loading.done()
        held.release()
        assert (await loading).code == "#" * LARGE_BYTES
        waiting.release()
        await held.load()
    assert (await waiting.load()).code == "#" * LARGE_BYTES


async def test_an_invalid_or_cancelled_execution_ends_before_it_is_bound(api: Api) -> None:
    cache, record = use(api, "")
    with pytest.raises(EndedBeforeRun, match=r"spec\."):
        await SpecInUse(cache=cache, record=record).load()
    cache, record = use(api)
    record.cancel("the pool default was deleted")
    with pytest.raises(EndedBeforeRun, match="the pool default was deleted"):
        await SpecInUse(cache=cache, record=record).load()
