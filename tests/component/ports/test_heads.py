"""Requests that would take more memory than they send, or that never end, at a server in this process."""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.slow_clients import connected
from tests.support.until import until

from mcp_exec_common.process.connections import RESERVE, ConnectionLimits, ConnectionTable
from mcp_exec_common.process.http_server import MAX_HEAD_BYTES, MAX_HEADERS, MAX_PIPELINED, build_server

GET = b"GET / HTTP/1.1\r\nhost: it\r\n"
OK = b"HTTP/1.1 200 OK\r\n"


async def respond(scope: Any, receive: Any, send: Any) -> None:
    """Read the body, and respond with its size."""
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    body = b"%d" % size
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
async def port() -> AsyncIterator[int]:
    server = build_server(
        respond, port=0, keep_alive_seconds=5, shutdown_seconds=1, limits=ConnectionLimits(body_seconds=0.5)
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await server.listening.wait()
        yield listener.getsockname()[1]
        server.should_exit = True
        await serving


def head_of(size: int) -> bytes:
    return b"POST / HTTP/1.1\r\nhost: it\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % size


async def test_a_large_body_may_take_longer_as_long_as_it_arrives(port: int) -> None:
    """A body has half a second here, a second more for each 64 KiB, and pauses of half a second."""
    size = 40 * 64 * 1024
    async with connected(port) as steady, connected(port) as stopping, connected(port) as dripping:
        for each in (steady, stopping, dripping):
            await each.send(head_of(size))
        await stopping.send(bytes(size - 1))
        stopped, dripped, _ = await asyncio.gather(
            stopping.until_closed(), dripping.drip(b"x" * 1000), steady.send_slowly(bytes(size), seconds=1.5)
        )
        assert stopped.startswith(b"HTTP/1.1 408 ")
        assert dripped.startswith(b"HTTP/1.1 408 ") or not dripped
        assert (await steady.until_closed()).endswith(b"%d" % size)


@pytest.mark.parametrize(
    ("request_bytes", "answer"),
    [
        (GET + b"connection: close\r\n\r\n", OK),
        (GET + b"x: " + b"y" * MAX_HEAD_BYTES + b"\r\n\r\n", b"HTTP/1.1 400 "),
        (b"GET /" + b"y" * MAX_HEAD_BYTES + b" HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 "),
        (GET + b"x: y\r\n" * MAX_HEADERS + b"\r\n", b"HTTP/1.1 400 "),
        (GET + b"x" * 2 * MAX_HEAD_BYTES, b""),
    ],
    ids=["small", "header", "path", "headers", "no end"],
)
async def test_a_head_is_bounded_even_if_it_arrives_at_once(port: int, request_bytes: bytes, answer: bytes) -> None:
    async with connected(port) as client:
        await client.send(request_bytes)
        received = await client.until_closed()
        assert received.startswith(answer)
        assert bool(received) == bool(answer)


async def test_line_breaks_after_a_request_do_not_end_a_long_one() -> None:
    release = asyncio.Event()

    async def wait(scope: Any, receive: Any, send: Any) -> None:
        await release.wait()
        await respond(scope, receive, send)

    server = build_server(
        wait, port=0, keep_alive_seconds=5, shutdown_seconds=1, limits=ConnectionLimits(head_seconds=0.1)
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await server.listening.wait()
        port = listener.getsockname()[1]
        async with connected(port) as client, connected(port) as other:
            await client.send(b"POST / HTTP/1.1\r\nhost: it\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx")
            await until(lambda: any(each.cycle for each in server.server_state.connections))
            await client.send(b"\r\n")
            await other.send(b"G")
            assert b"408 Request Timeout" in await other.until_closed()  # its deadline is the later one
            release.set()
            assert OK in await client.until_closed()
        server.should_exit = True
        await serving


async def test_headers_after_a_body_are_refused(port: int) -> None:
    async with connected(port) as client:
        await client.send(GET + b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n0\r\n" + b"x: y\r\n" * 1000)
        assert OK not in await client.until_closed()


async def test_requests_that_wait_behind_another_are_bounded(port: int) -> None:
    async with connected(port) as client:
        await client.send((GET + b"\r\n") * (2 * MAX_PIPELINED))
        assert (await client.until_closed()).count(OK) <= MAX_PIPELINED + 1


async def test_a_body_that_goes_on_after_its_response_ends_with_its_deadline(port: int) -> None:
    async with connected(port) as client:
        await client.send(GET + b"transfer-encoding: chunked\r\n\r\n")
        assert b"408 Request Timeout" in await client.drip(b"1\r\na\r\n" * 500)


class Idle:
    """A connection of the table."""

    closed = False

    def close_idle(self) -> None:
        self.closed = True


def test_the_connection_that_has_waited_longest_makes_room_and_one_that_serves_does_not() -> None:
    table = ConnectionTable(ConnectionLimits(max_connections=4, max_per_peer=3))
    first, second, third, fourth = (Idle() for _ in range(4))
    assert all(table.admit(connection, "sandbox") for connection in (first, second, third))
    table.set_active(first, "sandbox")
    assert table.admit(fourth, "sandbox")
    assert [each.closed for each in (first, second, third, fourth)] == [False, True, False, False]
    for connection in (third, fourth):
        table.set_active(connection, "sandbox")
    assert not table.admit(Idle(), "sandbox")
    table.set_waiting(third, "sandbox")
    assert table.admit(Idle(), "sandbox")
    assert third.closed
    assert len(table) == 3


def test_a_probe_gets_in_while_every_connection_serves_a_request() -> None:
    table = ConnectionTable(ConnectionLimits(max_connections=2, max_per_peer=2))
    busy = [Idle(), Idle()]
    for connection in busy:
        assert table.admit(connection, "sandbox")
        table.set_active(connection, "sandbox")
    assert not table.admit(Idle(), "sandbox")
    for number in range(RESERVE):
        probe = Idle()
        assert table.admit(probe, f"node-{number}")
        table.set_active(probe, f"node-{number}")
    assert not table.admit(Idle(), "another node")
    assert len(table) == 2 + RESERVE
    for connection in busy:
        table.remove(connection, "sandbox")
        table.remove(connection, "sandbox")
    assert len(table) == RESERVE
