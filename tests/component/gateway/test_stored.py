"""Bounds of what callers store in the API server, and of what they read from it."""

import asyncio
from typing import Any

import pytest
from tests.component.gateway.conftest import CEX, KEY, SECRETS, Answer, Gateway, key_entry, keys_secret, serving
from tests.component.gateway.test_refusals import assert_problem
from tests.support.api_server import FakeApiServer
from tests.support.constants import DEADLINE
from tests.support.nested import NESTED, nest_deeply
from tests.support.until import until

MIB = 2**20
WEEK = 7 * 24 * 3600
STORED = "urn:mcp-exec:problem:stored"


def large(**more: Any) -> dict[str, Any]:
    """A request of half a MiB whose execution is kept for a week."""
    code, context = "#" * 250_000 + "\nprint(1)", {"text": "x" * 250_000}
    return {"code": code, "context": context, "ttlSecondsAfterFinished": WEEK} | more


async def add(gateway: Gateway, count: int, body: dict[str, Any] | None = None, **options: Any) -> list[Answer]:
    return [await gateway.post(body, "?wait=0", **options) for _ in range(count)]


def statuses(answers: list[Answer]) -> list[int]:
    return sorted(each.status for each in answers)


async def test_one_key_cannot_store_more_bytes_than_its_namespace_may(api: FakeApiServer) -> None:
    async with serving(api, max_stored_bytes=4 * MIB) as gateway:
        answers = await add(gateway, 40, large())
        assert statuses(answers) == [202] * 8 + [429] * 32
        assert len(gateway.executions) == 8
        problem = assert_problem(answers[-1], 429)
        assert problem.type == STORED
        for word in ("the namespace agents", "maxStoredBytes", "ttlSecondsAfterFinished", "delete", "the chart"):
            assert word in problem.detail
        assert int(answers[-1].headers["Retry-After"]) > 0
        assert (await gateway.post(query="?wait=0")).status == 202, "a small one still fits"


async def test_parallel_requests_store_no_more_than_the_namespace_may(api: FakeApiServer) -> None:
    async with serving(api, max_stored=3) as gateway:
        answers = await asyncio.gather(*(gateway.post(query="?wait=0") for _ in range(12)))
        assert statuses(answers) == [202] * 3 + [429] * 9
        refused = next(each for each in answers if each.status == 429)
        assert "the namespace agents stores" in assert_problem(refused, 429).detail
        assert len(gateway.executions) == 3


async def test_an_execution_that_is_being_deleted_does_not_count(api: FakeApiServer) -> None:
    """A finalizer of somebody else may keep it for ever."""
    async with serving(api, max_stored=1) as gateway:
        name = (await gateway.post(query="?wait=0")).json["name"]
        assert_problem(await gateway.post(query="?wait=0"), 429)
        api.merge(CEX, name, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a.b/c"]}})
        async with asyncio.timeout(DEADLINE):
            while (await gateway.post(query="?wait=0")).status != 202:
                pass  # until the watch has reported it
        assert gateway.dependencies.index.stored.find_bytes(("agents", name)) > 0, "its reads are still limited"


async def test_finished_executions_count_with_their_output_until_they_are_deleted(api: FakeApiServer) -> None:
    async with serving(api, max_stored_bytes=4 * MIB) as gateway:
        name = (await gateway.post(query="?wait=0")).json["name"]
        gateway.finish(name, storedBytes=4 * MIB)
        stored = gateway.dependencies.index.stored
        await until(lambda: stored.find_bytes(("agents", name)) == 4 * MIB)
        assert_problem(await gateway.post(query="?wait=0"), 429)
        api.remove(CEX, name)
        await until(lambda: stored.find_bytes(("agents", name)) == 0)
        assert (await gateway.post(query="?wait=0")).status == 202


async def test_a_gateway_that_starts_counts_what_is_there(api: FakeApiServer) -> None:
    async with serving(api, max_stored_bytes=4 * MIB) as gateway:
        name = (await gateway.post(query="?wait=0")).json["name"]
        gateway.finish(name, storedBytes=4 * MIB)
    async with serving(api, max_stored_bytes=4 * MIB) as restarted:
        assert assert_problem(await restarted.post(query="?wait=0"), 429).type == STORED


@pytest.mark.parametrize("limits", [{"maxStored": 2}, {"maxStoredBytes": MIB}], ids=str)
async def test_a_key_has_its_own_bounds_and_others_go_on(api: FakeApiServer, limits: dict[str, int]) -> None:
    api.put(SECRETS, keys_secret(**{"team-a": key_entry(KEY, **limits), "b": key_entry("mcpx_b")}))
    async with serving(api) as gateway:
        answers = await add(gateway, 4, large())
        assert statuses(answers) == [202, 202, 429, 429]
        detail = assert_problem(answers[-1], 429).detail
        assert "the caller team-a stores" in detail
        assert f"raise {next(iter(limits))} of the API key team-a" in detail
        assert statuses(await add(gateway, 3, large(), key="mcpx_b")) == [202, 202, 202]


async def test_a_retry_of_what_was_made_is_served_while_nothing_more_fits(api: FakeApiServer) -> None:
    async with serving(api, max_stored=1) as gateway:
        again = {"Idempotency-Key": "k"}
        first = await gateway.post(query="?wait=0", headers=again)
        assert (await gateway.post(query="?wait=0", headers=again)).json["name"] == first.json["name"]
        assert_problem(await gateway.post(query="?wait=0", headers={"Idempotency-Key": "other"}), 429)


async def test_who_reads_large_executions_all_the_time_is_refused_and_others_are_not(api: FakeApiServer) -> None:
    api.put(SECRETS, keys_secret(**{"team-a": key_entry(KEY), "b": key_entry("mcpx_b")}))
    async with serving(api) as gateway:
        reads, now = gateway.dependencies.executions.reads, [100.0]
        reads.clock, reads.per_second, reads.burst = lambda: now[0], MIB, 2 * MIB
        name = (await gateway.post(query="?wait=0")).json["name"]
        gateway.finish(name, storedBytes=MIB)
        await until(lambda: gateway.dependencies.index.stored.find_bytes(("agents", name)) == MIB)
        path = f"/v1/executions/{name}"
        asked = [await gateway.ask("GET", path) for _ in range(3)]
        assert [each.status for each in asked] == [200, 200, 429]
        assert assert_problem(asked[-1], 429).type == "urn:mcp-exec:problem:rate-limited"
        assert asked[-1].headers["Retry-After"] == "1"
        for more in ("/approvals", "/artifacts", "/events"):
            assert (await gateway.ask("GET", path + more)).status == 429
        assert (await gateway.ask("GET", path, key="mcpx_b")).status == 200
        now[0] += 1
        assert (await gateway.ask("GET", path)).status == 200


async def test_what_a_neighbour_nests_deeply_stops_no_gateway(api: FakeApiServer, gateway: Gateway) -> None:
    nest_deeply(api)
    for attempt in ("seen by a watch", "seen by a list"):
        api.put(CEX, {"metadata": {"name": "deep"}, "spec": {"code": "1", "context": {"a": NESTED}}})
        gateway.finish_all()
        assert (await gateway.post({"code": "print(1)"})).json["phase"] == "Succeeded", attempt
        await api.expire_watches()
