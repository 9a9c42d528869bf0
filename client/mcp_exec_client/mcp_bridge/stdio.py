"""Standard input and output as streams of messages, one a line."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, BinaryIO, Final

MAX_LINE_BYTES: Final = 4 * 1024 * 1024
"""More than the largest body that a gateway accepts."""
_MAX_QUEUED: Final = 16


class LineTooLong(Exception):
    """A line of more than MAX_LINE_BYTES. What follows it cannot be read."""


async def read_lines(stream: BinaryIO) -> AsyncIterator[bytes]:
    """Yield lines until the stream ends. Raises LineTooLong.

    A thread reads them: asyncio cannot read the standard input of every platform. It does not outlive the program.
    """
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[bytes](_MAX_QUEUED)

    def read() -> None:
        with suppress(RuntimeError, OSError, ValueError):  # the loop or the stream is closed
            while True:
                line = stream.readline(MAX_LINE_BYTES + 1)
                asyncio.run_coroutine_threadsafe(queue.put(line), loop).result()
                if not line:
                    return

    threading.Thread(target=read, daemon=True, name="stdin").start()
    while line := await queue.get():
        if len(line) > MAX_LINE_BYTES:
            raise LineTooLong(f"a message has more than {MAX_LINE_BYTES} bytes")
        yield line


class LineWriter:
    """Writes messages, each as one line."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = asyncio.Lock()

    async def write(self, message: Any) -> None:
        """Write a message. A client that reads slowly holds up this message and those after it, not the program."""
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        async with self._lock:
            await asyncio.to_thread(self._write, line)

    def _write(self, line: bytes) -> None:
        self._stream.write(line)
        self._stream.flush()
