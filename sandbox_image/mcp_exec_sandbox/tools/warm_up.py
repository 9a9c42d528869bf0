"""Warm-up of tool calls, without a network: the first run of any code path is the slowest."""

import asyncio

from mcp_exec_sandbox.tools.connection import BrokerConnection

_RESPONSE = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"
    b'25\r\n{"type":"result","tool":"","value":0}\r\n0\r\n\r\n'
)


class _NoTransport(asyncio.Transport):
    """Transport that drops what is written."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Drop the data."""

    def is_closing(self) -> bool:
        """Return False."""
        return False

    def abort(self) -> None:
        """Do nothing."""


async def warm_up_connection() -> None:
    """Send a call without a network and read a canned response."""
    connection = BrokerConnection(host="192.0.2.1:1", token="-")  # noqa: S106 - is never sent
    connection.connection_made(_NoTransport())
    asyncio.get_running_loop().call_soon(connection.data_received, _RESPONSE)
    await connection.call(b"{}", lambda event: None)
    connection.connection_lost(None)
