"""Fork of the process that becomes the runner, before the supervisor has read its settings or opened anything.

Supervisor and runner need the same modules of the standard library. A fork after their import costs less than a second
interpreter. The child gets nothing of the supervisor's: it erases the supervisor's variables from its memory first, and
has no descriptors but a channel that brings its own.
"""

import ctypes
import importlib
import os
import re
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence

from mcp_exec_sandbox.protocol import CONTROL_FD, HIDDEN_PREFIXES, RunnerLimits, RunnerStart

COMMON = ("asyncio", "ctypes", "dataclasses", "datetime", "h11", "json", "mmap", "pathlib", "resource", "urllib.parse")
"""Modules that supervisor and runner need."""

MAX_DESCRIPTOR = 1024
_LENGTH_BYTES = 4
_M_ARENA_MAX = -8
_BYTES_OFFSET = sys.getsizeof(b"") - 1
"""Place of the first byte in an object of `bytes`."""


def import_common() -> None:
    """Import the modules that both processes need."""
    for name in COMMON:
        importlib.import_module(name)


class EarlyRunner:
    """The process that becomes the runner."""

    def __init__(self, language: str = "python") -> None:
        """Fork. The child imports the runner of the language, and never returns."""
        self._channel, remote = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            # closed by its number below, which is another descriptor later
            self._channel.detach()
            _become_runner(remote, language)
        remote.close()

    def start(self, limits: RunnerLimits, environment: Mapping[str, str], control: int, outputs: list[int]) -> int:
        """Send the process its limits, environment, control channel, stdout and stderr. Return its pid."""
        message = RunnerStart(limits=limits, environment=dict(environment), folder=os.getcwd()).encode()
        with self._channel as channel:
            socket.send_fds(channel, [len(message).to_bytes(_LENGTH_BYTES, "big")], [*outputs, control])
            channel.sendall(message)
        return self.pid


def _become_runner(channel: socket.socket, language: str) -> None:
    """Run the runner with what the supervisor sends, and end the process."""
    try:
        os.setsid()
        os.closerange(CONTROL_FD, channel.fileno())
        os.closerange(channel.fileno() + 1, MAX_DESCRIPTOR)
        erase_variables(HIDDEN_PREFIXES)
        if language == "typescript":
            from mcp_exec_sandbox.typescript import main
        else:
            from mcp_exec_sandbox.runner.__main__ import main

        if (start := _receive(channel)) is not None:
            os.chdir(start.folder)
            os.environ.clear()
            os.environ.update(start.environment)
            _limit_arenas(start.environment.get("MALLOC_ARENA_MAX", ""))
            main(start.limits)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _receive(channel: socket.socket) -> RunnerStart | None:
    """Take the descriptors of the runner, and return the rest of its start. None if the supervisor has ended."""
    head, descriptors, _, _ = socket.recv_fds(channel, _LENGTH_BYTES, 3)
    if len(head) < _LENGTH_BYTES:
        return None
    with channel.makefile("rb") as file:
        message = file.read(int.from_bytes(head, "big"))
    channel.detach()
    stdout, stderr, control = (_raise_number(descriptor) for descriptor in descriptors)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for source, target in ((stdout, 1), (stderr, 2), (control, CONTROL_FD)):
        os.dup2(source, target)
    os.closerange(CONTROL_FD + 1, MAX_DESCRIPTOR)
    return RunnerStart.decode(message)


def _raise_number(descriptor: int) -> int:
    """Return a copy of a descriptor above the numbers that the runner's own ones get."""
    import fcntl

    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, CONTROL_FD + 1)


def _limit_arenas(number: str) -> None:
    """Do what glibc does with this variable at a program's start."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and re.fullmatch(r"[0-9]{1,4}", number):
        mallopt(_M_ARENA_MAX, int(number))


def erase_variables(prefixes: Sequence[str]) -> None:
    """Remove the variables with these prefixes, and overwrite them where the process was given them.

    Python has made one copy of the environment, in objects of `bytes`, which `os.environ` uses as well.
    """
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    libc.strlen.argtypes = [ctypes.c_void_p]
    for name in [name for name in os.environ if name.startswith(tuple(prefixes))]:
        value = os.environb[name.encode()]
        given = libc.getenv(name.encode()) - len(name) - 1
        ctypes.memset(given, 0, libc.strlen(given))
        if len(value) > 1:  # all objects of one byte are shared
            ctypes.memset(id(value) + _BYTES_OFFSET, 0, len(value))
        del os.environ[name]
