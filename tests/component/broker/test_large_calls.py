"""Large calls: the broker checks account, budget, policy and size before it reads the arguments, and bounds memory."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest
from tests.component.broker.conftest import CEX, World, grant
from tests.component.broker.servers import Toolbox
from tests.support.constants import DEADLINE
from tests.support.until import until

from mcp_exec_broker.core.memory import MIB, FlightLimits

Object = dict[str, Any]


class Upload:
    """A call whose beginning has been sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def answer(self) -> tuple[int, Object]:
        """Return status and last line of the answer."""
        async with asyncio.timeout(DEADLINE):
            head = await self._reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
            body = await self._reader.readexactly(int(length.split(b":")[1]))
        status = int(head.split()[1])
        return status, json.loads(body) if status == 200 else {"message": body.decode()}

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


@asynccontextmanager
async def upload(world: World, *, tool: str = "box.echo", length: int = MIB, **changes: Any) -> AsyncIterator[Upload]:
    """Send a call's head and the first 20,000 bytes of its body."""
    begin = f'{{"id":"1","tool":"{tool}","arguments":{{"value":"'
    port = int(world.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"POST /v1/calls HTTP/1.1\r\nhost: it\r\nauthorization: Bearer {grant(**changes)}\r\ncontent-length: {length}"
    )
    writer.write(f"{head}\r\n\r\n{begin}".encode() + b"x" * (20_000 - len(begin)))
    try:
        yield Upload(reader, writer)
    finally:
        writer.close()


async def test_arguments_of_a_call_that_may_not_be_made_are_never_read(world: World, box: Toolbox) -> None:
    token = {"execution": "uid-2", "tool_calls": 0}
    async with (
        upload(world, tools=["box.add"]) as forbidden,
        upload(world, **token) as over_budget,
        upload(world, length=2 * MIB) as too_long,
        upload(world, tool="boxx.echo") as unknown,
        upload(world, length=64 * MIB) as beyond_all,
    ):
        answers = [await each.answer() for each in (forbidden, over_budget, too_long, unknown, beyond_all)]
    reasons = ["NotAllowed", "BudgetExceeded", "InvalidArguments", "NoSuchServer", None]
    assert [answer.get("reason") for _, answer in answers] == reasons
    assert "1048576" in answers[2][1]["message"]
    assert answers[4][0] == 413
    assert box.calls == []
    _, page = await world.ask("GET", "/v1/audit")
    assert {record["arguments"] for record in page["items"]} == {f"(not read: {size} bytes)" for size in (MIB, 2 * MIB)}


async def test_a_large_call_is_made_and_its_memory_released(world: World, box: Toolbox) -> None:
    text = "a text, with punctuation: {[,]} " * 25_000
    assert json.loads((await world.call("box.echo", value=text))["value"]) == text
    assert (await world.call("box.echo", value=["é"] * 50_000))["value"] == ["é"] * 50_000
    flight = world.broker.calls.in_flight
    await until(lambda: not flight.total and not flight.by_execution and not flight.by_namespace)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("[" + "[]," * 3_000_000 + "0]", "bytes of memory"),
        ("[" + '{"":0},' * 1_000_000 + "0]", "bytes of memory"),
        ("[" * 20_000 + "]" * 20_000, "not JSON"),
        ("[" * 101 + "0" * 20_000 + "]" * 101, "not JSON"),
        ("[" * 101 + '"' + "x" * 20_000 + '"' + "]" * 101, "deeper than 100"),
        ('0},"tool":"box.add","arguments":{"value":"' + "x" * 20_000 + '"', "twice"),
    ],
    ids=["lists", "objects", "too deep for Python", "long number", "too deep", "another tool"],
)
async def test_arguments_that_would_take_too_much_memory_or_stack_are_refused(
    world: World, box: Toolbox, arguments: str, message: str
) -> None:
    world.add("box", url=box.url, limits={"argumentBytes": 16 * MIB})
    await until(lambda: world.status("box").get("observedGeneration") == 2)
    body = f'{{"id":"1","tool":"box.echo","arguments":{{"value":{arguments}}}}}'.encode()
    async with (
        asyncio.timeout(DEADLINE),
        world.session.post(
            f"{world.url}/v1/calls", data=io.BytesIO(body), headers={"Authorization": f"Bearer {grant()}"}
        ) as response,
    ):
        answer = json.loads(await response.read())
    assert (answer["reason"], box.calls) == ("InvalidArguments", [])
    assert message in answer["message"]


async def test_what_one_execution_sends_slowly_takes_a_part_of_the_memory_and_no_other_waits(
    world: World, box: Toolbox
) -> None:
    world.add("box", url=box.url, limits={"argumentBytes": 16 * MIB})
    await until(lambda: world.status("box").get("observedGeneration") == 2)
    flight = world.broker.calls.in_flight
    async with AsyncExitStack() as stack:
        for count in range(5):
            await stack.enter_async_context(upload(world, length=12 * MIB))
            await until(lambda: flight.total == (count + 1) * 12 * MIB)  # noqa: B023 - awaited at once
        async with upload(world, length=12 * MIB) as further:
            assert (await further.answer())[1]["reason"] == "RateLimited"
        other = grant(execution="uid-2")
        assert (await world.call("box.echo", token=other, value="x" * 100_000))["type"] == "result"
    await until(lambda: not flight.total)
    outcomes = {record["outcome"] for record in (await world.ask("GET", "/v1/audit"))[1]["items"]}
    assert outcomes == {"denied", "ok"}  # a call that was broken off before its arguments has no record


async def test_arguments_that_wait_for_an_approval_leave_memory_to_others(world: World, box: Toolbox) -> None:
    rules = [{"tools": ["echo"], "action": "Approve"}]
    world.add("box", url=box.url, policy={"rules": rules, "approvalTimeoutSeconds": 60})
    await until(lambda: world.status("box").get("observedGeneration") == 2)
    world.api.put(CEX, {"metadata": {"name": "exec-1", "uid": "uid-1"}, "spec": {}, "status": {"phase": "Running"}})
    flight = world.broker.calls.in_flight
    flight.limits = FlightLimits(per_namespace=300_000)
    waiting = asyncio.create_task(world.call("box.echo", value="x" * 100_000))
    await until(lambda: flight.parked)
    refused = await world.call("box.echo", value="x" * 100_000)
    assert (refused["reason"], "wait for an approval" in refused["message"]) == ("RateLimited", True)
    assert (await world.call("box.add", a=1, b=2))["value"] == 3
    world.broker.pipeline.quotas.close_execution("uid-1")
    assert (await waiting)["reason"] == "ExecutionEnded"
    await until(lambda: not flight.parked and not flight.total)


async def test_the_requests_of_one_execution_are_bounded(world: World, box: Toolbox) -> None:
    async with AsyncExitStack() as stack:
        flight = world.broker.calls.in_flight
        requests = [
            await stack.enter_async_context(upload(world, length=20_001)) for _ in range(flight.limits.requests)
        ]
        await until(lambda: flight.total == 20_001 * len(requests))
        async with upload(world, length=20_001) as refused:
            status, answer = await refused.answer()
            assert (status, "in progress" in answer["message"]) == (429, True)
        assert (await world.call("box.add", token=grant(execution="uid-2"), a=1, b=2))["value"] == 3
        await requests[0].send(b"}")  # it ends, though badly
        assert (await requests[0].answer())[1]["reason"] == "InvalidArguments"
        assert (await world.call("box.add", a=1, b=2))["value"] == 3


async def test_a_large_body_without_its_length_or_its_tool_in_front_is_refused(world: World, box: Toolbox) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"id":"1","tool":"box.echo","arguments":{"value":"' + b"x" * 20_000
        yield b'"}}'

    headers = {"Authorization": f"Bearer {grant()}"}
    late = b'{"arguments":{"value":"' + b"x" * 20_000 + b'"},"id":"1","tool":"box.echo"}'
    for data, status in ((pieces(), 411), (late, 400)):
        async with asyncio.timeout(DEADLINE):
            response: aiohttp.ClientResponse
            async with world.session.post(f"{world.url}/v1/calls", data=data, headers=headers) as response:
                assert response.status == status, await response.text()
    assert box.calls == []
