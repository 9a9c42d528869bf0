"""Searches of tools that the runner asks the supervisor for, answered by a process that starts with the first one."""

import asyncio
import json
import socket
from typing import Any

from mcp_exec_sandbox.supervisor.execution.runner_process import RunnerProcess
from mcp_exec_sandbox.supervisor.json_object import parse_object
from mcp_exec_sandbox.supervisor.settings import log_failure

MODULE = "mcp_exec_sandbox.tool_search"
MAX_SEARCHES = 1000
"""Searches of one run. Later ones are refused."""
MAX_WAITING = 16
"""Searches that wait for their turn. More are refused: code sends the next one after the answer."""
MAX_ANSWER_BYTES = 5 * 1024 * 1024
SECONDS = 10.0
"""Time for one answer, the start of the process included."""


class ToolSearches:
    """The searches of one run."""

    def __init__(self, *, runner: RunnerProcess, setup: dict[str, Any]) -> None:
        """Prepare. `setup` is what the run may use."""
        self._runner = runner
        self._setup = {"language": runner.language, **setup}
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(MAX_WAITING)
        self._left = MAX_SEARCHES
        self._task: asyncio.Task[None] | None = None
        self._channel: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def add(self, message: dict[str, Any]) -> None:
        """Answer a request of the runner later. One that is too many is dropped, and so are those of Python's runner,
        which has an index of its own."""
        if self._left <= 0 or self._queue.full() or self._runner.language == "python":
            return
        self._left -= 1
        self._queue.put_nowait(message)
        if self._task is None:
            self._task = asyncio.create_task(self._work())

    def stop(self) -> None:
        """Answer no more. The process ends with its channel, or is killed with the code."""
        if self._task is not None:
            self._task.cancel()
        self._close()

    async def _work(self) -> None:
        while True:
            request = await self._queue.get()
            try:
                async with asyncio.timeout(SECONDS):
                    found = await self._search(request)
            except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
                log_failure("a search of tools failed", error)
                self._close()
                found = {"error": "the search of tools failed"}
            await self._runner.send({"type": "answer", "id": request.get("id"), **found})

    async def _search(self, request: dict[str, Any]) -> dict[str, Any]:
        reader, writer = self._channel or await self._start()
        writer.write(json.dumps(request).encode() + b"\n")
        await writer.drain()
        found = parse_object((await reader.readuntil(b"\n"))[:-1])
        if found is None:
            raise ValueError("the answer is no object")
        return {name: found[name] for name in ("tools", "error") if name in found}

    async def _start(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        own, remote = socket.socketpair()
        with remote:
            self._runner.spawn_helper(MODULE, remote.fileno())
        self._channel = reader, writer = await asyncio.open_connection(sock=own, limit=MAX_ANSWER_BYTES)
        writer.write(json.dumps(self._setup).encode() + b"\n")
        return reader, writer

    def _close(self) -> None:
        if self._channel is not None:
            self._channel[1].close()
            self._channel = None
