"""A tool call without a network: the first run of any code path is the slowest, so it is made while nobody waits."""

import asyncio

from mcp_exec_sandbox.tools.connection import Connection

_ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"
    b'25\r\n{"type":"result","tool":"","value":0}\r\n0\r\n\r\n'
)


class _NoTransport(asyncio.Transport):
    """Takes what is written, and sends it nowhere."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Forget the data."""

    def is_closing(self) -> bool:
        """Never."""
        return False

    def abort(self) -> None:
        """Nothing to end."""


async def rehearse() -> None:
    """Send a call to nobody and read its answer."""
    connection = Connection(host="192.0.2.1:1", token="-")  # noqa: S106 - goes nowhere
    connection.connection_made(_NoTransport())
    asyncio.get_running_loop().call_soon(connection.data_received, _ANSWER)
    await connection.call(b"{}", lambda notice: None)
    connection.connection_lost(None)
