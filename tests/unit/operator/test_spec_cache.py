"""Specs of waiting executions, with an API server that counts what is read."""

import asyncio
from typing import Any, cast

import pytest

from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.core.executions.execution import Execution
from mcp_exec_operator.core.executions.outcome import EndedBeforeRun, ExecutionGone
from mcp_exec_operator.core.executions.specs import LARGE_BYTES, SpecCache, SpecHolder


class Api:
    """The API server's executions."""

    def __init__(self) -> None:
        self.items: dict[str, Object] = {}
        self.read: list[str] = []

    async def get(self, _kind: str, _namespace: str, name: str) -> Object | None:
        self.read.append(name)
        return self.items.get(name)

    def create(self, name: str, size: int = 100) -> None:
        metadata = {"name": name, "namespace": "agents", "uid": name, "resourceVersion": "1", "generation": 1}
        self.items[name] = {
            "metadata": metadata | {"creationTimestamp": "2026-11-21T20:00:00Z"},
            "spec": {"code": "x" * size, "context": {}, "user": "u"},
        }


@pytest.fixture
def api() -> Api:
    return Api()


def build(api: Api, **limits: Any) -> SpecCache:
    return SpecCache(api=cast("OperatorApi", api), **limits)


def add(cache: SpecCache, api: Api, name: str, size: int = 100) -> SpecHolder:
    """Let an execution be seen for the first time."""
    api.create(name, size)
    holder = Execution.from_object(api.items[name], specs=cache).source
    cache.keep(holder)
    return holder


async def test_the_largest_specs_are_dropped_first_and_read_again(api: Api) -> None:
    cache = build(api, limit=1_000_000)
    small = [add(cache, api, f"small-{number}") for number in range(50)]
    large = [add(cache, api, f"large-{number}", 400_000) for number in range(5)]
    assert all(holder.spec is not None for holder in small)
    assert [holder.spec is None for holder in large].count(True) == 3
    dropped = next(holder for holder in large if holder.spec is None)
    name = dropped.facts.name
    assert await dropped.read() == api.items[name]["spec"]
    assert api.read == [name]
    assert await small[0].read() == small[0].spec
    assert api.read == [name]


async def test_what_ended_takes_no_memory(api: Api) -> None:
    cache = build(api, limit=1_000_000)
    for number in range(300):
        holder = add(cache, api, f"e{number}", 400_000)
        cache.discard(holder)
        cache.discard(holder)
    kept = [add(cache, api, f"kept-{number}", 400_000) for number in range(2)]
    assert [holder.spec is None for holder in kept] == [False, False]


async def test_large_specs_wait_for_each_other_and_small_ones_never_wait(api: Api) -> None:
    cache = build(api, in_use_limit=5 * LARGE_BYTES)
    first, second = (add(cache, api, name, LARGE_BYTES) for name in ("first", "second"))
    small = add(cache, api, "small")
    await first.read()
    waiting = asyncio.create_task(second.read())
    assert await small.read() == small.spec
    assert not waiting.done()
    first.release()
    first.release()
    assert await waiting == second.spec


async def test_a_cancelled_wait_leaves_its_memory_to_the_next(api: Api) -> None:
    cache = build(api, in_use_limit=5 * LARGE_BYTES)
    holders = [add(cache, api, f"e{number}", LARGE_BYTES) for number in range(3)]
    await holders[0].read()
    cancelled = asyncio.create_task(holders[1].read())
    next_one = asyncio.create_task(holders[2].read())
    await asyncio.wait({cancelled, next_one}, timeout=0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    holders[0].release()
    assert await next_one == holders[2].spec


async def test_a_spec_that_changed_while_it_was_dropped_is_noticed(api: Api) -> None:
    cache = build(api, limit=1000)
    holder = add(cache, api, "changed", 5000)
    assert holder.spec is None
    changed = api.items["changed"]
    changed["spec"] = {**changed["spec"], "user": "another"}
    await holder.read()
    assert holder.changed == ["user"]


async def test_a_deleted_execution_has_no_spec(api: Api) -> None:
    cache = build(api, limit=1000)
    holder = add(cache, api, "deleted", 5000)
    del api.items["deleted"]
    with pytest.raises(ExecutionGone):
        await holder.read()


def test_an_execution_keeps_neither_code_nor_output_nor_foreign_metadata(api: Api) -> None:
    api.create("e", 5000)
    body = api.items["e"]
    body["metadata"] |= {"managedFields": ["x" * 5000], "annotations": {"a": "x" * 5000}, "labels": {"b": "x" * 5000}}
    body["status"] = {"phase": "Running", "podName": "p", "output": {"stdout": "x" * 5000}}
    execution = Execution.from_object(body, specs=build(api))
    execution.source.discard()
    assert "x" * 100 not in str(vars(execution))
    assert (execution.seen.phase, execution.seen.status["podName"]) == ("Running", "p")


def use(api: Api, code: str = "print(1)", **limits: Any) -> Execution:
    api.create("used")
    api.items["used"]["spec"] = {"code": code}
    cache = build(api, **limits)
    execution = Execution.from_object({**api.items["used"], "status": {"phase": "Pending"}}, specs=cache)
    cache.keep(execution.source)
    return execution


async def test_a_spec_in_use_is_parsed_once_until_it_is_released(api: Api) -> None:
    execution = use(api)
    first = await execution.load()
    assert await execution.load() is first
    execution.source.release()
    again = await execution.load()
    assert (again, again is first) == (first, False)
    assert api.read == []


async def test_large_specs_in_use_wait_for_each_other_until_one_is_released(api: Api) -> None:
    cache = build(api, in_use_limit=1)
    first, second = (add(cache, api, name, LARGE_BYTES) for name in ("first", "second"))
    await first.read()
    loading = asyncio.create_task(second.read())
    await asyncio.wait({loading}, timeout=0)
    assert not loading.done()
    first.release()
    assert (await loading)["code"] == "x" * LARGE_BYTES
    second.release()
    assert (await first.read())["code"] == "x" * LARGE_BYTES


async def test_an_invalid_or_cancelled_execution_ends_before_it_is_bound(api: Api) -> None:
    with pytest.raises(EndedBeforeRun, match=r"spec\."):
        await use(api, "").load()
    execution = use(api)
    execution.cancel("the pool default was deleted")
    with pytest.raises(EndedBeforeRun, match="the pool default was deleted"):
        await execution.load()
