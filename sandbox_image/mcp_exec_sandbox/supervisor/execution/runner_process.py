"""Runner process: start, job, messages, output, exit."""

import asyncio
import contextlib
import fcntl
import os
import re
import select
import signal
import socket
import struct
import sys
import termios
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from mcp_exec_sandbox.protocol import AGENT_FILE, CONTROL_FD, STACK_SIGNAL, RunnerLimits, encode
from mcp_exec_sandbox.supervisor.json_object import parse_object
from mcp_exec_sandbox.supervisor.resources.processes import kill_descendants

PIPE_BYTES = 1024 * 1024
LINE_SLACK_BYTES = 256 * 1024
"""Size of the error in a line of the control channel, in addition to the result."""

_STACK = re.compile(rb'  File "%s", line ([0-9]{1,9}) in ' % AGENT_FILE.encode())
_HIDDEN_PREFIXES = ("MCP_EXEC_", "KUBERNETES_")


class RunnerListener(Protocol):
    """Receiver of the runner's messages and output."""

    def on_message(self, message: dict[str, Any]) -> None:
        """Handle a line of the control channel that is a JSON object. The agent's code may have written it."""

    def on_output(self, stream: int, data: memoryview) -> None:
        """Handle output on stream 1 or 2. The memory is reused after the call."""

    def on_exit(self, code: int) -> None:
        """Handle the end of the process (negative code: a signal)."""


_DEFAULTS = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


def spawn_runner(limits: RunnerLimits, environment: Mapping[str, str], control: int, outputs: list[int]) -> int:
    """Start the interpreter with these descriptors as its control channel, stdout and stderr. Return its pid."""
    command = [sys.executable, "-P", "-m", "mcp_exec_sandbox.runner", limits.to_argument()]
    # Copies above the target numbers, so that no descriptor is overwritten before it is copied.
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


class RunnerProcess:
    """One interpreter, started before its job. One listener gets all its lines and output."""

    def __init__(
        self,
        *,
        limits: RunnerLimits,
        environment: Mapping[str, str],
        line_bytes: int = 0,
        spawn: Callable[[RunnerLimits, Mapping[str, str], int, list[int]], int] = spawn_runner,
    ) -> None:
        self._control, remote = socket.socketpair()
        outputs = [_open_pipe(), _open_pipe()]
        self.pid = spawn(limits, environment, remote.fileno(), [write for _, write in outputs])
        remote.close()
        for _, write in outputs:
            os.close(write)
        self._outputs = {1: outputs[0][0], 2: outputs[1][0]}
        self._control.setblocking(False)
        self._buffer = bytearray(PIPE_BYTES)
        self._line = bytearray()
        self._line_limit = line_bytes + LINE_SLACK_BYTES
        self._listener: RunnerListener | None = None
        self._taken = {1: 0, 2: 0}
        self.exit_code: int | None = None
        """Exit code of the process, once it has ended."""

    def listen(self, listener: RunnerListener, *, result_bytes: int = 0) -> None:
        """Send all messages and output to `listener` from now on. `result_bytes` bounds the result in a line."""
        self._line_limit = result_bytes + LINE_SLACK_BYTES
        loop = asyncio.get_running_loop()
        if self._listener is None:
            loop.add_reader(self._control, self._read_control)
            for stream, descriptor in self._outputs.items():
                loop.add_reader(descriptor, self._on_readable, stream)
        self._listener = listener

    async def submit(
        self, *, code: str, context: dict[str, Any], output_bytes: int, tools: dict[str, Any] | None = None
    ) -> None:
        """Send the job. `tools` is its access to tools, None if it has none."""
        job = encode({"code": code, "context": context, "outputBytes": output_bytes, "tools": tools})
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().sock_sendall(self._control, job)

    def interrupt(self) -> None:
        """Interrupt the code, and make the runner report its stack."""
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, STACK_SIGNAL)
                os.kill(self.pid, signal.SIGINT)

    def kill_all(self) -> None:
        """Kill the runner and all other code, then read their remaining output."""
        kill_descendants()
        self.drain()

    def handle_exit(self, code: int) -> None:
        """Record that the process was reaped, and notify the listener."""
        self.exit_code = code
        self.drain()
        if self._listener is not None:
            self._listener.on_exit(code)

    def drain(self) -> None:
        """Read the pipes, output first, then messages. The pipes' capacity bounds the size."""
        for stream in tuple(self._outputs):
            for _ in range(4):
                if not self._read_output(stream):
                    break
        self._read_control()

    def take_output(self, written: dict[int, int]) -> None:
        """Read the output that the runner had `written` to each stream when it sent a message, to keep the order.

        The numbers may be wrong: reading stops at the end of the available output.
        """
        for stream, total in written.items():
            while (missing := total - self._taken[stream]) > 0:
                if not self._read_output(stream, max_bytes=missing):
                    break

    @property
    def open_streams(self) -> frozenset[int]:
        """The streams that the code has not closed."""
        return frozenset(self._outputs)

    def close(self) -> None:
        """Close the pipes unread."""
        loop = asyncio.get_running_loop()
        for descriptor in self._outputs.values():
            loop.remove_reader(descriptor)
            os.close(descriptor)
        self._outputs.clear()
        loop.remove_reader(self._control)
        self._control.close()

    def _on_readable(self, stream: int) -> None:
        # Messages first: they say how much output precedes them. Then at most the output that was available before
        # the messages were read: later output may follow a message that had not arrived yet.
        descriptor, taken = self._outputs[stream], self._taken[stream]
        available = _count_available(descriptor)
        self._read_control()
        remaining = available - (self._taken[stream] - taken)
        if remaining > 0:
            self._read_output(stream, max_bytes=min(remaining, PIPE_BYTES))
        elif available == 0 and _is_at_end(descriptor):
            self._read_output(stream)

    def _read_output(self, stream: int, max_bytes: int = PIPE_BYTES) -> bool:
        descriptor = self._outputs.get(stream)
        if descriptor is None:
            return False
        try:
            size = os.readv(descriptor, [memoryview(self._buffer)[:max_bytes]])
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
            *lines, rest = data.split(b"\n")
            for line in lines:
                self._line += line[: self._line_limit + 1 - len(self._line)]
                self._handle_line()
            self._line += rest[: self._line_limit + 1 - len(self._line)]

    def _handle_line(self) -> None:
        line = bytes(self._line)
        self._line.clear()
        if len(line) > self._line_limit or self._listener is None:
            return
        message = parse_object(line)
        if message is not None:
            self._listener.on_message(message)
        elif (match := _STACK.match(line)) is not None:
            self._listener.on_message({"type": "stack", "line": int(match[1])})


def build_runner_environment(environment: Mapping[str, str], *, home: str, temporary: str) -> dict[str, str]:
    """Return the code's environment: the container's without the variables of mcp-exec and of the cluster."""
    kept = {name: value for name, value in environment.items() if not name.startswith(_HIDDEN_PREFIXES)}
    # With it every `print` would be two writes. The runner's own streams are line buffered.
    kept.pop("PYTHONUNBUFFERED", None)
    return {**kept, "HOME": home, "TMPDIR": temporary, "PYTHONUTF8": "1"}


def _count_available(descriptor: int) -> int:
    size: int = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))[0]
    return size


def _is_at_end(descriptor: int) -> bool:
    """Return whether all writers have closed the pipe and everything is read."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return [event for _, event in poll.poll(0)] == [select.POLLHUP]


def _open_pipe() -> tuple[int, int]:
    read, write = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(read, False)
    with contextlib.suppress(OSError):
        # Large reads make large output cheap. The kernel may refuse this size.
        fcntl.fcntl(read, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return read, write
