"""Pool of an event loop's connections to the broker. It keeps idle connections and limits concurrent calls."""

import asyncio
import threading

from mcp_exec_sandbox.tools.connection import BrokerConnection, BrokerMessage, EventHandler

MAX_CALLS = 10
"""Maximum number of concurrent calls in one event loop. Further calls wait."""
CONNECT_SECONDS = 5.0
IDLE_SECONDS = 4.0
"""Maximum idle time of a reused connection. The broker may be about to close a connection that is idle longer."""


class BrokerUnreachable(Exception):
    """The connection to the broker failed, so nothing was sent."""


class ConnectionPool:
    """Connections of one event loop to the broker."""

    def __init__(self, *, host: str, port: int, token: str) -> None:
        self._host = host
        self._port = port
        self._token = token
        self._slots = asyncio.Semaphore(MAX_CALLS)
        self._idle: list[tuple[BrokerConnection, float]] = []

    async def call(self, body: bytes, on_event: EventHandler) -> tuple[BrokerMessage, int]:
        """Send one call and return the last line of its response and that line's size.

        Raises:
            BrokerUnreachable: the connection failed.
            BrokerRefused: the broker returned an error status.
            BrokerLost: the connection closed, or the response was invalid.
        """
        async with self._slots:
            connection = self._take_idle() or await self._connect()
            response = await connection.call(body, on_event)
            if connection.is_usable:
                self._idle.append((connection, asyncio.get_running_loop().time()))
            return response

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop()[0].close()

    def _take_idle(self) -> BrokerConnection | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection, since = self._idle.pop()
            if connection.is_usable and now - since < IDLE_SECONDS:
                return connection
            connection.close()
        return None

    async def _connect(self) -> BrokerConnection:
        host = f"[{self._host}]" if ":" in self._host else self._host
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: BrokerConnection(host=f"{host}:{self._port}", token=self._token), self._host, self._port
                )
        except TimeoutError:
            raise BrokerUnreachable(f"no answer within {CONNECT_SECONDS:g} s") from None
        except OSError as error:
            raise BrokerUnreachable(error.strerror or str(error)) from None
        return connection


class LoopConnectionPools:
    """One pool per event loop that calls tools: threads and `asyncio.run` have their own loops."""

    def __init__(self, *, host: str, port: int, token: str) -> None:
        self._host = host
        self._port = port
        self._token = token
        self._pools: dict[asyncio.AbstractEventLoop, ConnectionPool] = {}
        self._lock = threading.Lock()

    def get_pool(self) -> ConnectionPool:
        """Return the pool of the running loop."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = ConnectionPool(host=self._host, port=self._port, token=self._token)
            with self._lock:
                # A closed loop has closed its connections.
                self._pools = {key: value for key, value in self._pools.items() if not key.is_closed()}
                self._pools[loop] = pool
        return pool

    def close(self) -> None:
        """Close the idle connections of loops that do not run. Those of other threads time out at the broker."""
        for loop, pool in self._pools.items():
            if not loop.is_running() and not loop.is_closed():
                pool.close()
