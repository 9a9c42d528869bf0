"""The port that sandboxes must not reach: it accepts connections of everybody else, and serves nothing."""

import asyncio
import contextlib
import socket

from tests.support.constants import DEADLINE
from tests.support.ports import free_port

from mcp_exec_operator.cluster.preflight import answering


async def test_connections_are_accepted_and_end_without_a_byte() -> None:
    async with answering(free_port(), host="127.0.0.1") as port, asyncio.timeout(DEADLINE):
        for _ in range(200):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()


async def test_without_a_port_nothing_is_opened() -> None:
    async with answering(0) as port:
        assert port == 0


async def test_the_port_is_closed_with_the_operator() -> None:
    async with answering(free_port(), host="127.0.0.1") as port:
        pass
    with socket.socket() as connection:
        assert connection.connect_ex(("127.0.0.1", port)) != 0
