"""The Python client against the gateway: asynchronous and blocking."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import httpx
import pytest
from tests.component.gateway.conftest import BOSS, KEY, Gateway, serving
from tests.component.gateway.test_approvals import waiting
from tests.support.api_server import FakeApiServer
from tests.support.broker import running_broker
from tests.support.until import eventually, until

from mcp_exec_client import AsyncClient, Client, CodeExecutor, errors
from mcp_exec_client.events import EndEvent
from mcp_exec_client.executor import LimitsNotOffered

T = TypeVar("T")


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(gateway.url, api_key=KEY) as made:
        yield made


async def test_code_runs_and_its_result_is_typed(gateway: Gateway, client: AsyncClient) -> None:
    gateway.finish_all(output={"stdout": "3\n", "result": {"total": 3}, "stdoutBytes": 2})
    run = await client.run(
        "print(a + b)",
        context={"a": 1, "b": 2},
        tools=["github.*"],
        pool="long",
        timeout_seconds=200,
        output_bytes=2048,
        tool_calls=5,
        priority="High",
        user="u-42",
        ttl_seconds=60,
    )
    assert (run.phase, run.stdout, run.result, run.pool, run.start) == (
        "Succeeded",
        "3\n",
        {"total": 3},
        "long",
        "Warm",
    )
    spec = gateway.executions[run.name]["spec"]
    assert spec["limits"] == {"outputBytes": 2048, "toolCalls": 5}
    assert (spec["context"], spec["tools"], spec["user"], spec["priority"]) == (
        {"a": 1, "b": 2},
        ["github.*"],
        "u-42",
        "High",
    )
    assert (await client.get(run.name)).name == run.name


async def test_a_response_that_is_lost_after_the_creation_runs_nothing_twice(gateway: Gateway) -> None:
    gateway.finish_all()
    lost: list[int] = []

    class LosesFirstResponse(httpx.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            response = await super().handle_async_request(request)
            if not lost:
                lost.append(response.status_code)
                await response.aclose()
                raise httpx.ReadError("connection reset")
            return response

    async with httpx.AsyncClient(transport=LosesFirstResponse()) as http:
        run = await AsyncClient(gateway.url, api_key=KEY, http=http).run("print(1)")
    assert (run.succeeded, lost, list(gateway.executions)) == (True, [200], [run.name])


async def test_a_caller_that_gives_up_cancels_its_run(gateway: Gateway, client: AsyncClient) -> None:
    task = asyncio.create_task(client.run("while True: pass"))
    await until(lambda: gateway.executions)
    task.cancel()
    await asyncio.wait({task})
    (execution,) = gateway.executions.values()
    assert (task.cancelled(), execution["spec"]["cancelRequested"]) == (True, True)


async def test_a_run_without_an_end_is_cancelled_after_its_wait(gateway: Gateway, client: AsyncClient) -> None:
    with pytest.raises(errors.WaitExpired, match=r"execution exec-\w+ has not ended in time: Pending") as caught:
        await client.run("while True: pass", wait_seconds=0.05)
    assert gateway.executions[str(caught.value.execution)]["spec"]["cancelRequested"]


async def test_a_submitted_execution_is_followed_and_listed_and_cancelled(
    gateway: Gateway, client: AsyncClient
) -> None:
    first, second = await client.submit("1"), await client.submit("2")
    assert (first.phase, first.finished, first.stdout) == ("Pending", False, "")
    gateway.finish(first.name, output={"stdout": "1\n", "stdoutBytes": 2})
    events = [event async for event in client.stream(first.name)]
    assert [event.type for event in events] == ["status", "stdout", "end"]
    assert isinstance(events[-1], EndEvent)
    assert [event async for event in client.stream(first.name, last_event_id=events[-1].id)] == []
    assert [event.type async for event in client.stream(first.name, last_event_id=events[0].id)] == ["stdout", "end"]
    assert {each.name async for each in client.list()} == {first.name, second.name}
    assert [each.name async for each in client.list(phase="Pending")] == [second.name]
    assert (await client.cancel(second.name)).name == second.name
    assert gateway.executions[second.name]["spec"]["cancelRequested"]


async def test_a_gateway_with_a_short_maximum_wait_is_waited_for_all_the_same(api: FakeApiServer) -> None:
    async with serving(api, max_wait_seconds=2) as gateway, AsyncClient(gateway.url, api_key=KEY) as client:
        task = asyncio.create_task(client.run("1"))
        await until(lambda: gateway.executions)
        gateway.finish_all()
        gateway.finish(next(iter(gateway.executions)))
        assert (await task).succeeded
        assert len(gateway.executions) == 1


async def test_refusals_have_their_classes_and_fields(gateway: Gateway, client: AsyncClient) -> None:
    with pytest.raises(errors.RequestInvalid, match="timeoutSeconds: ") as caught:
        await client.run("1", timeout_seconds=61)
    assert [error.field for error in caught.value.errors] == ["timeoutSeconds"]
    with pytest.raises(errors.NotFound):
        await client.get("nothing")
    async with AsyncClient(gateway.url, api_key="wrong") as stranger:
        with pytest.raises(errors.Unauthenticated):
            await stranger.get("nothing")
    async with AsyncClient(gateway.url, api_key=KEY, namespace="others") as elsewhere:
        with pytest.raises(errors.Forbidden):
            await elsewhere.get("nothing")
    await client.submit("1", idempotency_key="k")
    with pytest.raises(errors.Conflict):
        await client.submit("2", idempotency_key="k")


async def test_approvers_read_approve_and_deny(gateway: Gateway, client: AsyncClient) -> None:
    name = await waiting(gateway)
    async with AsyncClient(gateway.url, api_key=BOSS) as boss:
        (pending,) = await client.approvals(name)
        assert (pending.state, pending.tool) == ("Pending", "github.merge")
        with pytest.raises(errors.Forbidden):
            await client.approve(name, pending.id)
        assert (await boss.approve(name, pending.id, comment="fine")).state == "Approved"
        with pytest.raises(errors.AlreadyDecided, match="it is Approved, by boss"):
            await boss.deny(name, pending.id)


async def test_tools_are_found_and_described(api: FakeApiServer) -> None:
    async with (
        running_broker(api),
        serving(api, broker_service="mcp-exec-broker") as gateway,
        AsyncClient(gateway.url, api_key=KEY) as client,
    ):
        found = await client.search_tools("create issue", detail_level="full", limit=1)
        assert [(each.server, each.name) for each in found] == [("github", "create_issue")]
        assert found[0].import_line == "from servers.github import create_issue"
        assert (await client.tools("github"))[0].name == "create_issue"
        with pytest.raises(errors.NotFound, match="servers with tools: github"):
            await client.tools("gitlab")


async def blocking(gateway: Gateway, use: Callable[[Client], T]) -> T:
    """Return what a function does with a blocking client, in a thread while the gateway runs in this one."""

    def call() -> T:
        with Client(gateway.url, api_key=KEY) as client:
            return use(client)

    return await asyncio.to_thread(call)


async def test_the_blocking_client_does_the_same(gateway: Gateway) -> None:
    gateway.finish_all()

    def use(client: Client) -> list[Any]:
        run = client.run("print(1)", context={"a": 1})
        events = [event.type for event in client.stream(run.name)]
        listed = [each.name for each in client.list(limit=1)]
        with pytest.raises(errors.NotFound):
            client.get("nothing")
        return [run.stdout, events, listed == [run.name]]

    assert await blocking(gateway, use) == ["1\n", ["status", "stdout", "end"], True]


async def test_threads_share_a_blocking_client_and_its_end_cancels_what_still_runs(gateway: Gateway) -> None:
    def use(client: Client) -> list[str]:
        ended: list[str] = []

        def run() -> None:
            try:
                client.run("while True: pass")
            except BaseException as error:
                ended.append(type(error).__name__)

        threads = [threading.Thread(target=run) for _ in range(3)]
        for thread in threads:
            thread.start()
        eventually(lambda: len(gateway.executions) == 3, every=0.01)
        client.close()
        for thread in threads:
            thread.join(10)
        with pytest.raises(RuntimeError, match="the client is closed"):
            client.get("x")
        return ended

    assert await blocking(gateway, use) == ["CancelledError"] * 3
    assert all(each["spec"]["cancelRequested"] for each in gateway.executions.values())


async def test_a_blocking_iteration_that_stops_early_leaves_no_connection(gateway: Gateway) -> None:
    def use(client: Client) -> str:
        name = client.submit("1").name
        for event in client.stream(name):
            return event.type
        return ""

    assert await blocking(gateway, use) == "status"
    await until(lambda: gateway.dependencies.index.wait_count == 0)


async def test_a_blocking_iteration_may_outlive_its_client(gateway: Gateway) -> None:
    def use(client: Client) -> list[str]:
        events = client.stream(client.submit("1").name)
        first = next(events).type
        client.close()
        events.close()
        return [first]

    assert await blocking(gateway, use) == ["status"]


async def test_a_function_that_the_client_calls_cannot_block_it(gateway: Gateway) -> None:
    def use(_: Client) -> None:
        with (
            Client(gateway.url, api_key=lambda: str(client.submit("1"))) as client,
            pytest.raises(RuntimeError, match="must not call the client"),
        ):
            client.submit("1")

    await blocking(gateway, use)


async def test_limits_of_an_executor_select_a_pool_that_the_gateway_has(gateway: Gateway, client: AsyncClient) -> None:
    gateway.finish_all(durations={"run": 1.0})
    executor = CodeExecutor(client, timeout=100, memory_limit="512Mi", cpu_limit=1)
    assert (await executor.execute("print(1)"))["output"] == "1\n"
    assert [each["spec"]["poolRef"]["name"] for each in gateway.executions.values()] == ["long"]
    with pytest.raises(LimitsNotOffered, match=r"default \(768Mi, 1 CPUs, 60 s\); long \(768Mi, 1 CPUs, 300 s\)"):
        await executor.execute("print(1)", memory_limit="1Ti")
    stats = await client.stats()
    assert ([each.name for each in stats.pools], stats.executions.own) == (["default", "long"], 0)
