"""Responses in parts: what is sent, what ends them, and how long a client may take."""

import asyncio
from collections.abc import Sequence

import pytest
from starlette.types import Message

from mcp_exec_gateway.core.http import stream
from mcp_exec_gateway.core.http.stream import StreamResponse, cancel_all


class Sent(list[Message]):
    """Messages that a server was given."""

    async def send(self, message: Message) -> None:
        self.append(message)

    @property
    def parts(self) -> list[bytes]:
        return [message["body"] for message in self if message["type"] == "http.response.body"]


async def done() -> None:
    """End at once."""


async def never() -> None:
    await asyncio.Event().wait()


async def relay(
    sent: Sent, parts: Sequence[bytes | None], *, leaves: bool = False, ends: bool = True, keep_alive: bytes = b""
) -> None:
    """Relay parts to a client, which leaves before them if it does."""
    queue: asyncio.Queue[bytes | None] = asyncio.Queue()
    for part in parts:
        queue.put_nowait(part)
    leaving, ending = (asyncio.create_task(done() if now else never()) for now in (leaves, ends))
    await asyncio.sleep(0)
    response = StreamResponse(content_type="text/event-stream", keep_alive=keep_alive, keep_alive_seconds=0.001)
    try:
        await response.relay(queue.get, sent.send, leaving=leaving, ending=ending)
    finally:
        await cancel_all(leaving, ending)


async def test_parts_that_wait_are_sent_before_a_stream_ends() -> None:
    sent = Sent()
    await relay(sent, [b"a", b"b"])
    assert sent.parts == [b"a", b"b"]
    assert sent[0] == {
        "type": "http.response.start",
        "status": 200,
        "headers": [
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ],
    }


async def test_a_client_that_has_left_is_sent_nothing() -> None:
    sent = Sent()
    await relay(sent, [b"a"], leaves=True)
    assert sent == []


async def test_a_source_ends_its_stream() -> None:
    sent = Sent()
    await relay(sent, [b"a", None, b"b"], ends=False)
    assert sent.parts == [b"a"]


@pytest.mark.parametrize(("keep_alive", "signs"), [(b": keep-alive\n\n", 3), (b"", 0)])
async def test_silence_is_broken_by_signs_of_life_if_the_stream_has_any(keep_alive: bytes, signs: int) -> None:
    sent, heard = Sent(), asyncio.Event()

    async def send(message: Message) -> None:
        sent.append(message)
        if len(sent.parts) == 3:
            heard.set()

    response = StreamResponse(content_type="x/y", keep_alive=keep_alive, keep_alive_seconds=0.001)
    leaving = asyncio.create_task(never())
    ending = asyncio.create_task(heard.wait() if signs else done_after_turns())
    async with asyncio.timeout(30):
        await response.relay(asyncio.Queue[bytes | None]().get, send, leaving=leaving, ending=ending)
    assert sent.parts[:3] == [keep_alive] * signs
    await cancel_all(leaving, ending)


async def done_after_turns() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


async def test_a_client_that_accepts_no_part_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def block(message: Message) -> None:
        await never()

    monkeypatch.setattr(stream, "SEND_SECONDS", 0.001)
    response = StreamResponse(content_type="x/y", keep_alive=b"")
    with pytest.raises(TimeoutError):
        await response.send_part(b"a", block)
