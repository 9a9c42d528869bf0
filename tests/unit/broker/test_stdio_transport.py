"""Lines that a stdio server writes, and the end of its command."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.component.broker.servers import greet
from tests.support.pace import paced
from tests.support.until import until

from mcp_exec_broker.core.memory import BytesInFlight, receiving_for
from mcp_exec_broker.core.upstream import stdio_transport
from mcp_exec_broker.core.upstream.errors import ServerUnavailable
from mcp_exec_broker.core.upstream.stdio_transport import connect_bridge

DEADLINE = paced(20)
TOKEN = "ab" * 32
TEXT = b"hello, this is no JSON\n"
EXITED = (
    b"\n"
    + json.dumps({"jsonrpc": "2.0", "method": "mcp-exec/exited", "params": {"code": 0, "line": ""}}).encode()
    + b"\n"
)
MESSAGE = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n'


class Bridge:
    """A bridge whose server writes what a test gives it."""

    def __init__(self) -> None:
        self.ends: list[ServerUnavailable] = []
        self.messages: list[object] = []
        self.writer: asyncio.StreamWriter

    def write(self, *lines: bytes) -> None:
        self.writer.writelines(lines)

    @property
    def kinds(self) -> list[str]:
        return [type(message).__name__ for message in self.messages]


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Bridge, "asyncio.Task[None]"]]:
    """Yield a bridge, and the task that reads its messages until they end."""
    bridge, accepted = Bridge(), asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await greet(reader, writer, TOKEN)
        writer.write(b'{"ok": true}\n')
        bridge.writer = writer
        accepted.set()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with (
        asyncio.timeout(DEADLINE),
        server,
        receiving_for(BytesInFlight(), ("agents", "git"), keeps=False),
        connect_bridge(f"127.0.0.1:{port}", tokens=[TOKEN], max_line_bytes=2**16, on_end=bridge.ends.append) as (
            messages,
            _,
        ),
    ):
        await accepted.wait()

        async def read() -> None:
            async for message in messages:
                bridge.messages.append(message)

        yield bridge, asyncio.create_task(read())
        bridge.writer.close()


async def test_a_command_that_prints_text_and_exits_has_exited_and_nothing_else() -> None:
    async with connected() as (bridge, reading):
        bridge.write(TEXT)
        await bridge.writer.drain()
        for _ in range(100):
            await asyncio.sleep(0)
        assert bridge.messages == []
        bridge.write(EXITED)
        await reading
    assert bridge.messages == []
    assert [(end.reason, str(end)) for end in bridge.ends] == [("CommandExited", "the command exited with code 0")]


async def test_text_is_reported_before_the_message_that_follows_it() -> None:
    async with connected() as (bridge, _):
        bridge.write(TEXT, MESSAGE)
        await until(lambda: len(bridge.messages) == 2)
    assert bridge.kinds == ["ValueError", "SessionMessage"]


async def test_each_line_of_text_is_reported_but_the_last_one_before_the_end() -> None:
    async with connected() as (bridge, reading):
        bridge.write(TEXT, TEXT, EXITED)
        await reading
    assert bridge.kinds == ["ValueError"]
    assert [end.reason for end in bridge.ends] == ["CommandExited"]


async def test_text_of_a_command_that_goes_on_is_reported_after_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio_transport, "_HOLD_SECONDS", 0.01)
    async with connected() as (bridge, _):
        bridge.write(TEXT)
        await until(lambda: bool(bridge.messages))
        assert (bridge.kinds, bridge.ends) == (["ValueError"], [])
