"""Standard output and error of the code: line-buffered text with a count of the bytes written.

Messages on the control channel carry the counts, so that the supervisor knows which output precedes a message.
"""

import array
import contextlib
import io
import json
import os
import socket
import sys
import threading
from typing import Any

from mcp_exec_sandbox.protocol import encode

_READ_BYTES = 64 * 1024
_MAX_DESCRIPTORS = 3


class Channel:
    """Lines of JSON to and from the supervisor. Forked processes of the code can't use it."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._owner = os.getpid()
        self._socket = socket.socket(fileno=descriptor)
        self._buffer = bytearray()
        self._descriptors: list[int] = []
        # Reentrant, because the handler of an interrupt can send while a message is being sent.
        self._lock = threading.RLock()
        os.register_at_fork(after_in_child=self._socket.close)

    def receive(self) -> dict[str, Any]:
        """Return the next message.

        Raises:
            EOFError: the supervisor has closed the channel.
        """
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            self._read_more()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        message: dict[str, Any] = json.loads(line)
        return message

    def take_descriptors(self) -> list[int]:
        """Return the open files that came with the messages so far."""
        taken, self._descriptors = self._descriptors, []
        return taken

    def send(self, message: dict[str, Any]) -> None:
        """Send one line. The line break before it ends whatever the code may have written to the descriptor."""
        if self.is_owner():
            with self._lock:
                self._socket.sendall(b"\n" + encode(message))

    def is_owner(self) -> bool:
        """Return whether this process is the runner, and not a child that the code forked."""
        return os.getpid() == self._owner

    def wait_for_end(self) -> None:
        """Block until the channel closes. The supervisor kills the runner once it has the report."""
        while self._socket.recv(4096):
            pass

    def _read_more(self) -> None:
        size = array.array("i", [0]).itemsize * _MAX_DESCRIPTORS
        data, messages, _, _ = self._socket.recvmsg(_READ_BYTES, socket.CMSG_SPACE(size), socket.MSG_CMSG_CLOEXEC)
        for level, kind, content in messages:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                numbers = array.array("i")
                numbers.frombytes(content[: len(content) - len(content) % numbers.itemsize])
                self._descriptors += numbers
        if not data:
            raise EOFError
        self._buffer += data


class _CountingFile(io.FileIO):
    """A descriptor that counts the bytes written to it by this process. Output of other processes isn't counted."""

    def __init__(self, descriptor: int, name: str) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self.written = 0
        # Python's own name of the stream, which some programs print.
        self.name = name

    def write(self, data: Any, /) -> int:
        """Write and count."""
        size = super().write(data)
        self.written += size
        return size


class _LastingBuffer(io.BufferedWriter):
    """Buffer that stays open: code that wraps it in a stream of its own would close it with that stream."""

    def close(self) -> None:
        """Write the buffer."""
        self.flush()


class StandardStreams:
    """Both output streams of this process."""

    def __init__(self) -> None:
        self._files = (_CountingFile(1, "<stdout>"), _CountingFile(2, "<stderr>"))
        # `backslashreplace` escapes what UTF-8 can't encode instead of raising.
        self._texts = tuple(
            io.TextIOWrapper(
                _LastingBuffer(file), encoding="utf-8", errors="backslashreplace", newline="\n", line_buffering=True
            )
            for file in self._files
        )

    def install(self) -> None:
        """Make them the interpreter's streams."""
        sys.stdout, sys.stderr = self._texts
        sys.__stdout__, sys.__stderr__ = self._texts  # type: ignore[misc]

    def flush(self) -> None:
        """Write buffered output."""
        for text in self._texts:
            with contextlib.suppress(Exception):
                text.flush()

    def count_written(self) -> list[int]:
        """Return the bytes written to each stream."""
        return [file.written for file in self._files]
