"""What answers at the address of a stdio server's pod and is not its bridge: it gets no token and no arguments."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from tests.component.broker.conftest import World
from tests.component.broker.servers import Object, module, real_bridge, stdio_status, stdio_token
from tests.support.relay import relaying
from tests.support.until import until

from mcp_exec_broker.core.upstream import stdio_transport
from mcp_exec_common.peers import compute_proof
from mcp_exec_common.supervisor.tokens import token_digest

STDIO: Object = {"image": "i", "command": ["mcp-server-time"]}
TIME = module("mcp_server_time", "--local-timezone=UTC")
ZONE = "Europe/Berlin"
"""The argument of each call."""
REQUEST = re.compile(
    rb"GET /v1/proof\?nonce=[0-9a-f]{64} HTTP/1\.1\r\n(?:Host: peer\r\nAccept-Encoding: identity\r\n\r\n)?"
)
"""The only request before the proof, whose first line is all that an impostor may read."""
Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Impostor:
    """A pod that took the address of another one, and keeps what it gets."""

    play: Play
    address: str = ""
    received: list[bytes] = field(default_factory=list)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Impostor"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.received.append(await reader.readuntil(b"\n"))
        try:
            await self.play(reader, writer)
            self.received.append(await reader.read())
        finally:
            writer.close()


async def accept_all(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer as the bridge of the release before."""
    writer.write(b'{"ok": true}\n')


async def guess(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await prove(writer, key=token_digest(stdio_token("other")), nonce="0" * 64)


async def stay_silent(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
    """Read, and answer nothing."""


async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")


async def prove(writer: asyncio.StreamWriter, *, key: str, nonce: str) -> None:
    address = writer.get_extra_info("peername")[0]
    body = {"proof": compute_proof(key=key, nonce=nonce, address=address), "address": address, "nonce": "a" * 64}
    text = json.dumps(body)
    writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())


@pytest.mark.parametrize("play", [accept_all, guess, stay_silent, close, refuse], ids=lambda play: str(play.__name__))
async def test_who_takes_a_pods_address_gets_no_token_and_no_arguments(
    world: World, monkeypatch: pytest.MonkeyPatch, play: Play
) -> None:
    monkeypatch.setattr(stdio_transport, "_PROOF_SECONDS", 0.5)
    async with Impostor(play).running() as impostor:
        world.add("time", stdio=STDIO, status=stdio_status(impostor.address))
        await until(lambda: world.status("time").get("reason") == "BridgeNotProven")
        assert "nothing was sent to its bridge" in world.status("time")["message"]
        answer = await world.call("time.get_current_time", timezone=ZONE)
        assert (answer["reason"], answer["cause"]) == ("ServerUnavailable", "BridgeNotProven")
    received = b"".join(impostor.received)
    for secret in (stdio_token("time"), token_digest(stdio_token("time")), ZONE):
        assert secret.encode() not in received
    assert REQUEST.sub(b"", received) == b""


async def test_a_relay_to_the_real_bridge_is_noticed_before_anything_is_sent(world: World) -> None:
    passed: list[bytes] = []

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, downstream = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.3", 0))
        await asyncio.gather(copy(reader, downstream, passed), copy(upstream, writer, []))

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: list[bytes]) -> None:
        while data := await reader.read(65536):
            kept.append(data)
            writer.write(data)
        writer.close()

    async with real_bridge(TIME, token=stdio_token("time")) as address:
        port = int(address.rpartition(":")[2])
        async with await asyncio.start_server(relay, "127.0.0.1", 0) as server:
            own = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            world.add("time", stdio=STDIO, status=stdio_status(own))
            await until(lambda: world.status("time").get("reason") == "BridgeNotProven")
            assert "it is a relay" in world.status("time")["message"]
            assert (await world.call("time.get_current_time", timezone=ZONE))["cause"] == "BridgeNotProven"
    assert all(REQUEST.fullmatch(each) for each in passed)


async def test_the_token_never_travels_and_what_does_opens_no_second_session(world: World) -> None:
    sent: list[bytes] = []

    async def watch(data: bytes, is_answer: bool) -> bool:
        if not is_answer:
            sent.append(data)
        return True

    async with real_bridge(TIME, token=stdio_token("time")) as address:
        port = int(address.rpartition(":")[2])
        async with relaying(port, watch) as between:  # on loopback it has the broker's own address
            world.add("time", stdio=STDIO, status=stdio_status(f"127.0.0.1:{between}"))
            await world.listed("time")
            assert (await world.call("time.get_current_time", timezone=ZONE))["value"]["timezone"] == ZONE
        text = b"".join(sent)
        assert ZONE.encode() in text
        assert stdio_token("time").encode() not in text
        request = REQUEST.match(text)
        assert request is not None
        line, _, _ = text[request.end() :].partition(b"\n")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request[0] + line + b"\n")
        await reader.readuntil(b"\r\n\r\n")
        assert b'{"error": "the token is invalid"}' in await reader.read()
        writer.close()


async def test_a_status_without_the_uid_of_a_pod_is_one_of_an_earlier_operator_and_nothing_is_called(
    world: World,
) -> None:
    async with Impostor(accept_all).running() as impostor:
        world.add("time", stdio=STDIO, status={"workload": {"ready": True, "address": impostor.address}})
        await until(lambda: world.status("time").get("reason") == "PodNotReady")
        assert (await world.call("time.get_current_time", timezone=ZONE))["cause"] == "PodNotReady"
    assert impostor.received == []
