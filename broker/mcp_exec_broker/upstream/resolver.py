"""Resolver of host names with a time limit."""

import asyncio
import socket
from typing import Final

import aiohttp
from aiohttp.abc import ResolveResult

_SECONDS: Final = 5.0
"""Time limit: that of a connection, so that a silent DNS server has a reason of its own."""


class TimedResolver(aiohttp.ThreadedResolver):
    """The system's resolver, whose requests fail after a few seconds."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a host. Raises OSError if it does not resolve in time."""
        try:
            async with asyncio.timeout(_SECONDS):
                return await super().resolve(host, port, family)
        except TimeoutError:
            raise OSError(socket.EAI_AGAIN, f"no answer of DNS within {_SECONDS:g} s") from None
