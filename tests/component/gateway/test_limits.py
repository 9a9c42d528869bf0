"""Limits of a caller, and requests to a pool with a full queue."""

import asyncio

from tests.component.gateway.conftest import KEY, SBP, SECRETS, Gateway, key_entry, keys_secret, pool, serving
from tests.component.gateway.test_refusals import assert_problem
from tests.support.api_server import FakeApiServer
from tests.support.until import until

from mcp_exec_api.wire.stats import KeyLimits


async def limited(gateway: Gateway, **limits: object) -> None:
    """Give the key these limits and no others."""
    gateway.api.put(SECRETS, keys_secret(**{"team-a": key_entry(KEY, **limits)}))
    keys, wanted = gateway.dependencies.keys, KeyLimits.model_validate(limits)
    await until(lambda: (found := keys.find(KEY)) is not None and found.entry.limits == wanted)


async def fill(gateway: Gateway, name: str, queued: int, **status: object) -> None:
    """Set the length of the pool's queue in its status, as the operator does."""
    given = {**pool(name), "status": {"queued": queued, **status}}
    given["spec"]["maxQueued"] = 40
    gateway.api.put(SBP, given)
    pools = gateway.dependencies.pools
    await until(lambda: (found := pools.find("agents", name)) is not None and found.queued == queued)


async def test_a_full_queue_is_429_with_the_time_to_come_back_and_leaves_nothing(gateway: Gateway) -> None:
    await fill(gateway, "default", 40, expectedWaitSeconds=61.0)
    answer = await gateway.post()
    problem = assert_problem(answer, 429)
    assert (problem.type, problem.title) == ("urn:mcp-exec:problem:queue-full", "The pool's queue is full")
    assert "40 executions wait for a pod of pool default, and its maxQueued is 40" in problem.detail
    assert "expected wait is 61 s" in problem.detail
    assert answer.headers["Retry-After"] == "7"
    assert gateway.executions == {}
    assert gateway.dependencies.index.count_active("agents", "team-a") == 0
    assert (await gateway.post({"code": "1", "poolRef": {"name": "long"}}, "?wait=0")).status == 202
    await fill(gateway, "default", 39, expectedWaitSeconds=6000.0)
    assert (await gateway.post(query="?wait=0")).status == 202


async def test_a_retry_of_what_was_made_is_served_while_the_queue_is_full(gateway: Gateway) -> None:
    again = {"Idempotency-Key": "k"}
    first = await gateway.post(query="?wait=0", headers=again)
    await fill(gateway, "default", 40)
    assert (await gateway.post(query="?wait=0", headers=again)).json["name"] == first.json["name"]
    refused = await gateway.post(query="?wait=0", headers={"Idempotency-Key": "other"})
    assert (refused.status, refused.headers["Retry-After"]) == (429, "5")


async def test_a_keys_requests_a_minute_are_bounded_on_every_route(gateway: Gateway) -> None:
    await limited(gateway, requestsPerMinute=3)
    now = [100.0]
    gateway.dependencies.callers.rate_limiter.clock = lambda: now[0]
    name = (await gateway.post(query="?wait=0")).json["name"]
    assert (await gateway.ask("GET", f"/v1/executions/{name}")).status == 200
    assert (await gateway.ask("GET", "/v1/executions")).status == 200
    for method, path in (("POST", ""), ("GET", ""), ("GET", f"/{name}"), ("DELETE", f"/{name}")):
        answer = await gateway.ask(method, "/v1/executions" + path, json={"code": "1"} if method == "POST" else None)
        problem = assert_problem(answer, 429)
        assert problem.type == "urn:mcp-exec:problem:rate-limited"
        assert "team-a may send 3 requests in a minute" in problem.detail
        assert answer.headers["Retry-After"] == "20"
    assert list(gateway.executions) == [name]
    now[0] += 20
    assert (await gateway.post(query="?wait=0")).status == 202


async def test_a_priority_beyond_the_keys_is_refused_and_none_at_all_is_lowered(
    gateway: Gateway, api: FakeApiServer
) -> None:
    await limited(gateway, maxPriority="Low")
    assert_problem(await gateway.post({"code": "1", "priority": "Normal"}), 422, "priority")
    assert_problem(await gateway.post({"code": "1", "priority": "Highest"}), 422, "priority")
    assert gateway.executions == {}
    made = [await gateway.post({"code": "1", **more}, "?wait=0") for more in ({}, {"priority": "Low"})]
    assert [gateway.executions[each.json["name"]]["spec"]["priority"] for each in made] == ["Low", "Low"]
    await limited(gateway, maxPriority="High")
    made = [await gateway.post({"code": "1", **more}, "?wait=0") for more in ({}, {"priority": "High"})]
    assert [gateway.executions[each.json["name"]]["spec"]["priority"] for each in made] == ["Normal", "High"]


async def test_an_execution_that_waits_shows_where_it_stands(gateway: Gateway, api: FakeApiServer) -> None:
    place = {"position": 12, "of": 40, "expectedWaitSeconds": 6}
    api.on_create = lambda collection, item: (
        gateway.finish(item["metadata"]["name"], "Pending", reason="PoolAtCapacity", queue=place)
        if "code" in item["spec"]
        else None
    )
    name = (await gateway.post(query="?wait=0")).json["name"]
    shown = (await gateway.ask("GET", f"/v1/executions/{name}")).json
    assert (shown["phase"], shown["reason"], shown["queue"]) == ("Pending", "PoolAtCapacity", place)


async def test_waits_of_one_caller_are_bounded_and_create_nothing_beyond(api: FakeApiServer) -> None:
    api.put(SECRETS, keys_secret(**{"team-a": key_entry(KEY), "small": key_entry("mcpx_small", maxWaits=1)}))
    async with serving(api, max_waits_per_caller=2) as gateway:
        waits = gateway.dependencies.executions.wait_slots
        waiting = [asyncio.create_task(gateway.post()) for _ in range(2)]
        waiting.append(asyncio.create_task(gateway.post(key="mcpx_small")))
        await until(lambda: waits.open == 3 and len(gateway.executions) == 3)
        name = next(iter(gateway.executions))
        for key, holder in ((KEY, "team-a has 2"), ("mcpx_small", "small has 1")):
            problem = assert_problem(await gateway.post(key=key), 429)
            assert (problem.type, f"{holder} open waits" in problem.detail) == ("urn:mcp-exec:problem:too-many", True)
            assert_problem(await gateway.ask("GET", f"/v1/executions/{name}?wait=5", key=key), 429)
            assert (await gateway.ask("GET", f"/v1/executions/{name}", key=key)).status == 200
        assert len(gateway.executions) == 3
        assert (await gateway.post(query="?wait=0")).status == 202
        for each in list(gateway.executions):
            gateway.finish(each)
        assert [(await each).status for each in waiting] == [200, 200, 200]
        assert waits.open == 0


async def test_streams_of_one_caller_and_of_one_execution_are_bounded(api: FakeApiServer) -> None:
    api.put(SECRETS, keys_secret(**{"team-a": key_entry(KEY, maxStreams=10), "b": key_entry("mcpx_b")}))
    async with serving(api, max_streams_per_caller=1) as gateway:
        one, two = [(await gateway.post(query="?wait=0")).json["name"] for _ in range(2)]
        streams = gateway.dependencies.streams

        async def follow(name: str, key: str = KEY) -> None:
            async with gateway.request("GET", f"/v1/executions/{name}/events", key=key) as answer:
                await answer.read()

        async with asyncio.TaskGroup() as group:
            following = [group.create_task(follow(one)) for _ in range(7)]
            following.append(group.create_task(follow(one, "mcpx_b")))
            await until(lambda: streams.open == 8)
            for key, name, expected in (
                (KEY, one, f"agents/{one} has 8 open event streams"),
                ("mcpx_b", two, "b has 1 open event streams"),
            ):
                problem = assert_problem(await gateway.ask("GET", f"/v1/executions/{name}/events", key=key), 429)
                assert expected in problem.detail
            following += [group.create_task(follow(two)) for _ in range(3)]
            await until(lambda: streams.open == 11)
            answer = await gateway.ask("GET", f"/v1/executions/{two}/events")
            assert "team-a has 10 open event streams" in assert_problem(answer, 429).detail
            for each in following:
                each.cancel()
        await until(lambda: streams.open == 0 == streams.by_execution.open)
