import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from starlette.types import Message, Scope

from mcp_exec_gateway.core.events.follower import EventFrame, StreamPosition
from mcp_exec_gateway.core.events.response import NDJSON, StreamingEventResponse
from mcp_exec_gateway.core.http.limits import MemoryBudget

SCOPE: Scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
TEXT = {"text": "x" * 200_000}
LISTS: dict[str, Any] = {"value": [[] for _ in range(80_000)]}


class Client:
    """A client that accepts a response's parts once it is released."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.is_asked = asyncio.Event()
        self.accepts = asyncio.Event()

    async def receive(self) -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(self, message: Message) -> None:
        body = message.get("body", b"")
        if len(body) > 1000:
            self.is_asked.set()
            await self.accepts.wait()
        self.received += body


async def follow(fields: Sequence[dict[str, Any]]) -> AsyncGenerator[EventFrame, None]:
    for each in fields:
        yield EventFrame(type="result", position=StreamPosition(), at="", fields=each)


def stream(memory: MemoryBudget, *fields: dict[str, Any]) -> StreamingEventResponse:
    return StreamingEventResponse(
        follow(fields), encoding=NDJSON, closing=asyncio.Event(), memory=memory, namespace="a", slots=[]
    )


async def test_events_that_a_client_does_not_accept_count_until_it_does() -> None:
    memory, client = MemoryBudget(), Client()
    serving = asyncio.create_task(stream(memory, TEXT, LISTS)(SCOPE, client.receive, client.send))
    await client.is_asked.wait()
    await asyncio.sleep(0)
    assert 72_000 + 80_000 * 70 < memory.used < 80_000 * 100  # the text as it is sent, the lists as Python has them
    client.accepts.set()
    await serving
    assert (client.received.count(b"[]"), memory.used) == (80_000, 0)


async def test_a_stream_without_memory_ends_early_and_without_an_end() -> None:
    memory, client = MemoryBudget(limit=1_000_000), Client()
    client.accepts.set()
    await stream(memory, TEXT, LISTS, TEXT)(SCOPE, client.receive, client.send)
    assert 200_000 < len(client.received) < 201_000
    assert memory.used == 0
