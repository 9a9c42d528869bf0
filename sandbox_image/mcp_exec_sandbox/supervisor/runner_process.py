"""The runner process as the supervisor sees it: start, job, messages, output, end."""

import asyncio
import contextlib
import fcntl
import json
import os
import re
import select
import signal
import socket
import struct
import sys
import termios
from collections.abc import Mapping
from typing import Any, Protocol

from mcp_exec_sandbox.protocol import AGENT_FILE, CONTROL_FD, STANDING_SIGNAL, RunnerLimits, encode
from mcp_exec_sandbox.supervisor.processes import kill_descendants

PIPE_BYTES = 1024 * 1024
LINE_SLACK_BYTES = 256 * 1024
"""Room for the error in a line of the control channel, beside the result."""

_STANDING = re.compile(rb'  File "%s", line ([0-9]{1,9}) in ' % AGENT_FILE.encode())
_HIDDEN_PREFIXES = ("MCP_EXEC_", "KUBERNETES_")


class Listener(Protocol):
    """What hears the runner."""

    def on_message(self, message: dict[str, Any]) -> None:
        """A line of the control channel that is a JSON object; agent code may have written it."""

    def on_output(self, stream: int, data: memoryview) -> None:
        """Output on stream 1 or 2; the memory is reused after the call."""

    def on_exit(self, code: int) -> None:
        """The process ended (negative: by a signal)."""


class RunnerProcess:
    """One interpreter, started ahead. All its lines and output go to one listener."""

    def __init__(self, *, limits: RunnerLimits, environment: Mapping[str, str], line_bytes: int = 0) -> None:
        self._control, theirs = socket.socketpair()
        outputs = [_pipe(), _pipe()]
        self.pid = _spawn(limits, environment, theirs.fileno(), [write for _, write in outputs])
        theirs.close()
        for _, write in outputs:
            os.close(write)
        self._outputs = {1: outputs[0][0], 2: outputs[1][0]}
        self._control.setblocking(False)
        self._buffer = bytearray(PIPE_BYTES)
        self._line = bytearray()
        self._line_limit = line_bytes + LINE_SLACK_BYTES
        self._listener: Listener | None = None
        self._taken = {1: 0, 2: 0}
        self.exit_code: int | None = None
        """How the process ended, once it has."""

    def listen(self, listener: Listener, *, result_bytes: int = 0) -> None:
        """Hand everything to `listener` from now on; `result_bytes` bounds the result in a line."""
        self._line_limit = result_bytes + LINE_SLACK_BYTES
        loop = asyncio.get_running_loop()
        if self._listener is None:
            loop.add_reader(self._control, self._read_control)
            for stream, descriptor in self._outputs.items():
                loop.add_reader(descriptor, self._on_output, stream)
        self._listener = listener

    async def submit(
        self, *, code: str, context: dict[str, Any], output_bytes: int, tools: dict[str, Any] | None = None
    ) -> None:
        """Hand over the job; `tools` is how it may call tools, if it may."""
        job = encode({"code": code, "context": context, "outputBytes": output_bytes, "tools": tools})
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().sock_sendall(self._control, job)

    def interrupt(self) -> None:
        """Ask the code to stop."""
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, STANDING_SIGNAL)
                os.kill(self.pid, signal.SIGINT)

    def kill_all(self) -> None:
        """Kill the runner and whatever else runs, then take what they had written."""
        kill_descendants()
        self.drain()

    def ended(self, code: int) -> None:
        """The process was reaped."""
        self.exit_code = code
        self.drain()
        if self._listener is not None:
            self._listener.on_exit(code)

    def drain(self) -> None:
        """Take what is in the pipes, in the order output, control; bounded by what they hold."""
        for stream in tuple(self._outputs):
            for _ in range(4):
                if not self._read_output(stream):
                    break
        self._read_control()

    def take_output(self, written: dict[int, int]) -> None:
        """Take output up to what the runner had `written` to each stream when it sent a message, so that order is kept.

        The numbers may be wrong; no more is taken than is there.
        """
        for stream, total in written.items():
            while (missing := total - self._taken[stream]) > 0:
                if not self._read_output(stream, most=missing):
                    break

    def _on_output(self, stream: int) -> None:
        # Messages first: they say how much of the output came before them. Of the output no more than what was there
        # before they were read: whatever comes meanwhile may come after a message that was not there yet.
        descriptor, taken = self._outputs[stream], self._taken[stream]
        there = _waiting_bytes(descriptor)
        self._read_control()
        left = there - (self._taken[stream] - taken)
        if left > 0:
            self._read_output(stream, most=min(left, PIPE_BYTES))
        elif there == 0 and _is_at_end(descriptor):
            self._read_output(stream)

    def _read_output(self, stream: int, most: int = PIPE_BYTES) -> bool:
        descriptor = self._outputs.get(stream)
        if descriptor is None:
            return False
        try:
            size = os.readv(descriptor, [memoryview(self._buffer)[:most]])
        except BlockingIOError:
            return False
        except OSError:
            size = 0
        if size == 0:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(self._outputs.pop(stream))
            return False
        self._taken[stream] += size
        if self._listener is not None:
            self._listener.on_output(stream, memoryview(self._buffer)[:size])
        return True

    def _read_control(self) -> None:
        while True:
            try:
                data = self._control.recv(PIPE_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                asyncio.get_running_loop().remove_reader(self._control)
                return
            *ends, rest = data.split(b"\n")
            for end in ends:
                self._line += end[: self._line_limit + 1 - len(self._line)]
                self._take_line()
            self._line += rest[: self._line_limit + 1 - len(self._line)]

    def _take_line(self) -> None:
        line = bytes(self._line)
        self._line.clear()
        if len(line) > self._line_limit or self._listener is None:
            return
        message = parse_object(line)
        if message is not None:
            self._listener.on_message(message)
        elif (match := _STANDING.match(line)) is not None:
            self._listener.on_message({"type": "standing", "line": int(match[1])})


def parse_object(text: bytes) -> dict[str, Any] | None:
    """A strict JSON object (no NaN), or None; never an error, however the text is made."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def runner_environment(environment: Mapping[str, str], *, home: str, temporary: str) -> dict[str, str]:
    """The environment of the code: the container's, without what speaks of mcp-exec or the cluster."""
    kept = {name: value for name, value in environment.items() if not name.startswith(_HIDDEN_PREFIXES)}
    # Unbuffered, every `print` would be two writes; the runner's streams are buffered by line.
    kept.pop("PYTHONUNBUFFERED", None)
    return {**kept, "HOME": home, "TMPDIR": temporary, "PYTHONUTF8": "1"}


def _spawn(limits: RunnerLimits, environment: Mapping[str, str], control: int, outputs: list[int]) -> int:
    command = [sys.executable, "-P", "-m", "mcp_exec_sandbox.runner", limits.to_argument()]
    # Descriptors above the targets first: none of them may be overwritten before it is copied.
    sources = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10) for descriptor in (*outputs, control)]
    actions: list[tuple[Any, ...]] = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
    actions += [
        (os.POSIX_SPAWN_DUP2, source, target) for source, target in zip(sources, (1, 2, CONTROL_FD), strict=True)
    ]
    try:
        return os.posix_spawn(
            sys.executable, command, environment, file_actions=actions, setsid=True, setsigmask=[], setsigdef=_DEFAULTS
        )
    finally:
        for source in sources:
            os.close(source)


_DEFAULTS = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


def _waiting_bytes(descriptor: int) -> int:
    size: int = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))[0]
    return size


def _is_at_end(descriptor: int) -> bool:
    """Whether nobody writes any more, and all is read."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return [event for _, event in poll.poll(0)] == [select.POLLHUP]


def _pipe() -> tuple[int, int]:
    read, write = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(read, False)
    with contextlib.suppress(OSError):
        # Large reads make large output cheap; the kernel may allow less.
        fcntl.fcntl(read, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return read, write
