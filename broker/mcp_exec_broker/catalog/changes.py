"""ToolServers whose status must be written, collected until a writer takes them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from mcp_exec_common.kube.reflector import ObjectKey

_WRITE_INTERVAL: Final = 0.5
"""Seconds between two rounds: changes in between are written together."""


class ChangedServers:
    """Set of servers with a changed catalog."""

    def __init__(self) -> None:
        self._keys: set[ObjectKey] = set()
        self._wakeup = asyncio.Event()

    def add(self, key: ObjectKey) -> None:
        """Add a server."""
        self._keys.add(key)
        self._wakeup.set()

    async def write_all(self, write: Callable[[ObjectKey], Awaitable[None]]) -> None:
        """Write each added server, forever."""
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            keys, self._keys = self._keys, set()
            await asyncio.gather(*(write(key) for key in keys))
            await asyncio.sleep(_WRITE_INTERVAL)
