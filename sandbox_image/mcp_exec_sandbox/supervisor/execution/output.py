"""Output streams of the run: bytes in, bounded events out."""

import asyncio
import codecs
from typing import Literal

from mcp_exec_sandbox.supervisor.execution.events import EventLog
from mcp_exec_sandbox.supervisor.execution.redraws import RedrawnLines
from mcp_exec_sandbox.supervisor.settings import MIB
from mcp_exec_tools.text import cut_marker

PROMPT_EVENTS = 100
"""Events of a stream that are written at once. Later output is collected, so that single bytes can't fill the log."""
COLLECT_SECONDS = 0.025
MAX_WRITTEN_BYTES = 128 * MIB
"""More output than this, of both streams together, or more messages, ends the run: it would only use CPU."""


class OutputStream:
    """One stream of the run. It writes the head as events while it arrives, and the tail at the end."""

    def __init__(self, *, kind: Literal["stdout", "stderr"], limit: int, log: EventLog) -> None:
        self.kind = kind
        self._limit = limit
        self._log = log
        self._lines = RedrawnLines()
        self._buffer = HeadTailBuffer(limit, lines=self._lines)
        self._pending: list[str] = []
        self._events = 0
        self._timer: asyncio.TimerHandle | None = None
        self.total = 0
        """Number of bytes written so far."""
        self.truncated = False
        """Whether bytes were cut. Known after `finish`."""

    def write(self, data: memoryview) -> None:
        """Add output of the code."""
        self.total += len(data)
        text = self._buffer.write(data)
        if not text:
            return
        self._pending.append(text)
        if self._events < PROMPT_EVENTS:
            self._flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(COLLECT_SECONDS, self._flush)

    def finish(self) -> None:
        """Write the remaining events. Call it once."""
        rest, self.truncated = self._buffer.finish()
        self._pending.append(rest)
        self._flush()

    @property
    def was_redrawn(self) -> bool:
        """Whether earlier states of lines were left out. Known after `finish`."""
        return self._lines.has_dropped

    def describe_cut(self) -> str:
        """Return a sentence about what was cut."""
        return f"Of {self.total} bytes, the first and the last were kept, {self._limit} in all."

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        text = "".join(self._pending)
        self._pending.clear()
        if text:
            self._events += 1
            self._log.append(self.kind, text=text)


class RunOutput:
    """Both output streams of a run, and how much the code has written in all."""

    def __init__(self, *, limit: int, log: EventLog) -> None:
        self.stdout = OutputStream(kind="stdout", limit=limit, log=log)
        self.stderr = OutputStream(kind="stderr", limit=limit, log=log)
        self._control_bytes = 0
        self._closed = False

    @property
    def streams(self) -> tuple[OutputStream, OutputStream]:
        """The streams."""
        return self.stdout, self.stderr

    @property
    def truncated(self) -> bool:
        """Whether bytes of a stream were cut. Known after `finish`."""
        return any(stream.truncated for stream in self.streams)

    def write(self, descriptor: int, data: memoryview) -> bool:
        """Add output of the code; after the end it is dropped. Return False if there was too much in all."""
        if self._closed:
            return True
        (self.stdout if descriptor == 1 else self.stderr).write(data)
        return self.stdout.total + self.stderr.total <= MAX_WRITTEN_BYTES

    def count_control(self, size: int) -> bool:
        """Count bytes of the control channel. Return False if there were too many in all."""
        self._control_bytes += size
        return self._control_bytes <= MAX_WRITTEN_BYTES

    def close(self) -> None:
        """Drop all later output."""
        self._closed = True

    def finish(self) -> None:
        """Write the remaining events, and drop all later output. Call it once."""
        self.close()
        for stream in self.streams:
            stream.finish()


class HeadTailBuffer:
    """Converts the bytes of a stream to text with at most `limit` bytes of them.

    The texts from `write`, joined and followed by the text from `finish`, are the whole output if it fits the limit.
    Otherwise they are its head, a marker with the number of bytes cut, and its tail. No character is ever split.
    Bytes that aren't UTF-8 count as the replacement character that stands for them.
    """

    def __init__(self, limit: int, *, lines: RedrawnLines | None = None) -> None:
        """Prepare. `lines` leaves out parts of the text before it is measured."""
        self._lines = lines
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._head_left = limit - limit // 2
        self._head_open = True
        self._tail_size = limit // 2
        self._tail = _Tail(0)

    def write(self, data: bytes | bytearray | memoryview) -> str:
        """Add bytes and return the text that belongs to the head."""
        text = self._decoder.decode(data)
        return self._add(text if self._lines is None else self._lines.write(text))

    def finish(self) -> tuple[str, bool]:
        """Return the text that follows the head, and whether bytes were cut. Call it once."""
        text = self._decoder.decode(b"", True)
        head = self._add(text if self._lines is None else self._lines.write(text) + self._lines.finish())
        tail = self._tail.read()
        cut = self._tail.total - len(tail)
        if not cut:
            return head + tail.decode(), False
        tail = tail.lstrip(_CONTINUATION) if _is_continuation(tail) else tail
        return f"{head}{cut_marker(self._tail.total - len(tail), 'bytes')}{tail.decode()}", True

    def _add(self, text: str) -> str:
        if not self._head_open:
            self._tail.write(text.encode())
            return ""
        data = text.encode()
        if len(data) <= self._head_left:
            self._head_left -= len(data)
            return text
        self._head_open = False
        end = self._head_left
        while end and data[end] & 0xC0 == 0x80:
            end -= 1
        # The tail gets the bytes that a character on the border leaves unused in the head.
        self._tail = _Tail(self._tail_size + self._head_left - end)
        self._tail.write(data[end:])
        return data[:end].decode()


_CONTINUATION = bytes(range(0x80, 0xC0))


def _is_continuation(data: bytes) -> bool:
    return bool(data) and data[0] & 0xC0 == 0x80


class _Tail:
    """The last `size` bytes written. It grows with the output: idle sandboxes and small runs use no memory for it."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._buffer = bytearray()
        self.total = 0

    def write(self, data: bytes) -> None:
        """Append. Old bytes are dropped once they are as many as are kept, which bounds the copies."""
        self.total += len(data)
        self._buffer += data
        if len(self._buffer) >= 2 * self._size:
            del self._buffer[: len(self._buffer) - self._size]

    def read(self) -> bytes:
        """Return the stored bytes, oldest first."""
        return bytes(self._buffer[max(len(self._buffer) - self._size, 0) :])
