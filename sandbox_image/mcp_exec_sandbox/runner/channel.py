"""The runner's end of the control channel."""

import json
import os
import socket
import threading
from typing import Any

from mcp_exec_sandbox.protocol import encode


class Channel:
    """Lines of JSON to and from the supervisor. Forked processes of the code can't use it."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._owner = os.getpid()
        self._socket = socket.socket(fileno=descriptor)
        # Reentrant, because the handler of an interrupt can send while a message is being sent.
        self._lock = threading.RLock()
        os.register_at_fork(after_in_child=self._socket.close)

    def receive(self) -> dict[str, Any]:
        """Return the next message.

        Raises:
            EOFError: the supervisor has closed the channel.
        """
        with self._socket.makefile("rb") as lines:
            line = lines.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        message: dict[str, Any] = json.loads(line)
        return message

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
