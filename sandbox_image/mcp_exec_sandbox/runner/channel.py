"""The runner's end of the control channel."""

import array
import json
import os
import socket
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
