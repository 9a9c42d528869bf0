"""Connector of HTTP clients whose peers prove themselves before the first request."""

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import aiohttp

from mcp_exec_common.peers.proof import PeerNotProven, demand_proof, normalize_address

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.tracing import Trace

PROOF_SECONDS: Final = 3.0
"""Time for a connection and its proof, unless the request has less."""


class ProvenConnector(aiohttp.BaseConnector):
    """Opens connections to IP addresses over TCP, and returns them once their peer has proved that it holds a key.

    A connection is proved once and then kept for later requests. No request is sent before, so that no stranger gets a
    token. `find_key` returns the key from the headers of the request.
    """

    def __init__(self, *, find_key: Callable[[Mapping[str, str]], str], keepalive_timeout: float) -> None:
        super().__init__(limit=0, keepalive_timeout=keepalive_timeout)
        self._find_key = find_key

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: list["Trace"],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the signature is aiohttp's
    ) -> "ResponseHandler":
        seconds = min(PROOF_SECONDS, timeout.sock_connect or PROOF_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                connection = await _open(req.url.raw_host or "", req.url.port or 0)
                try:
                    await demand_proof(connection, key=self._find_key(req.headers))
                    _, protocol = await self._loop.create_connection(self._factory, sock=connection)
                except BaseException:
                    connection.close()
                    raise
                return protocol
        except TimeoutError as error:
            raise TimeoutError(f"no connection and proof within {seconds:g} s") from error
        except OSError as error:
            raise aiohttp.ClientConnectorError(req.connection_key, error) from error


async def _open(host: str, port: int) -> socket.socket:
    try:
        address = normalize_address(host)
    except ValueError as error:
        raise PeerNotProven(f"{host[:100]!r} is no IP address") from error
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # with the protocol's number, without which asyncio does not set TCP_NODELAY
    connection = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, (address, port))
    except BaseException:
        connection.close()
        raise
    return connection
