"""The connections of one event loop: kept between calls, and never more than so many calls at a time."""

import asyncio
import threading

from mcp_exec_sandbox.tools.connection import Answer, Connection, Notice

MAX_CALLS = 10
"""Calls at a time in one event loop; more wait for their turn."""
CONNECT_SECONDS = 5.0
IDLE_SECONDS = 4.0
"""A connection unused for longer may be one that the broker is about to close: a new one is made instead."""


class BrokerUnreachable(Exception):
    """No connection to the broker can be made; nothing was sent."""


class Pool:
    """Connections to one broker."""

    def __init__(self, *, host: str, port: int, token: str) -> None:
        self._host = host
        self._port = port
        self._token = token
        self._turns = asyncio.Semaphore(MAX_CALLS)
        self._idle: list[tuple[Connection, float]] = []

    async def call(self, body: bytes, notice: Notice) -> tuple[Answer, int]:
        """Make one call. Raises BrokerUnreachable, BrokerRefused and BrokerLost."""
        async with self._turns:
            connection = self._take() or await self._connect()
            answer = await connection.call(body, notice)
            if connection.is_usable:
                self._idle.append((connection, asyncio.get_running_loop().time()))
            return answer

    def _take(self) -> Connection | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection, since = self._idle.pop()
            if connection.is_usable and now - since < IDLE_SECONDS:
                return connection
            connection.close()
        return None

    async def _connect(self) -> Connection:
        host = f"[{self._host}]" if ":" in self._host else self._host
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(host=f"{host}:{self._port}", token=self._token), self._host, self._port
                )
        except TimeoutError:
            raise BrokerUnreachable(f"no answer within {CONNECT_SECONDS:g} s") from None
        except OSError as error:
            raise BrokerUnreachable(error.strerror or str(error)) from None
        return connection


class Pools:
    """A pool for each event loop that makes calls: threads and `asyncio.run` have loops of their own."""

    def __init__(self, *, host: str, port: int, token: str) -> None:
        self._host = host
        self._port = port
        self._token = token
        self._pools: dict[asyncio.AbstractEventLoop, Pool] = {}
        self._lock = threading.Lock()

    def here(self) -> Pool:
        """The pool of the running loop."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = Pool(host=self._host, port=self._port, token=self._token)
            with self._lock:
                # Loops that have ended took their connections with them.
                self._pools = {other: kept for other, kept in self._pools.items() if not other.is_closed()}
                self._pools[loop] = pool
        return pool
