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
import termios
from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from mcp_exec_sandbox.protocol import (
    AGENT_FILE,
    FORK,
    STACK_SIGNAL,
    Language,
    RunnerLimits,
    encode,
)
from mcp_exec_sandbox.supervisor.execution.spawning import MODULES, Spawn, spawn_module
from mcp_exec_sandbox.supervisor.json_object import parse_object
from mcp_exec_sandbox.supervisor.resources.processes import Process, interrupt_main_thread, kill_process, read_process

PIPE_BYTES = 1024 * 1024
"""Capacity of a pipe, and the most that is read from one in a turn of the event loop."""
CONTROL_BYTES = 64 * 1024
"""Budget of the control channel for a turn of the event loop: a flood takes some milliseconds of it."""
READ_BYTES = 8 * 1024
LINE_COST_BYTES = 256
"""Least use of the budget by a line or a read. gVisor may return the bytes of one write only."""
LAST_CONTROL_BYTES = 512 * 1024
"""Bytes of messages that are read after the runner's end: more than a socket's buffer holds."""
LINE_SLACK_BYTES = 256 * 1024
"""Size of the error in a line of the control channel, in addition to the result."""
_STACK = re.compile(rb'  File "%s(?: [0-9]{1,9})?>", line ([0-9]{1,9}) in ' % AGENT_FILE.rstrip(">").encode())
_MORE_CALLS = b"  ..."
"""Line of `faulthandler` for the rest of a stack of more than a hundred calls."""
_TYPE = b'"type"'


class RunnerListener(Protocol):
    """Receiver of the runner's messages and output."""

    def on_message(self, message: dict[str, Any]) -> None:
        """Handle a line of the control channel that is a JSON object. The agent's code may have written it."""

    def on_control(self, size: int) -> None:
        """Handle the arrival of `size` bytes on the control channel, before their messages."""

    def on_output(self, stream: int, data: memoryview) -> None:
        """Handle output on stream 1 or 2. The memory is reused after the call."""

    def on_exit(self, code: int) -> None:
        """Handle the end of the process (negative code: a signal)."""


class RunnerProcess:
    """One interpreter, started or forked before its job. One listener gets all its lines and output."""

    def __init__(
        self,
        *,
        limits: RunnerLimits,
        environment: Mapping[str, str],
        language: Language = "python",
        spawn: Spawn | None = None,
    ) -> None:
        """Start the interpreter by `spawn`, or as a new program."""
        self._limits, self._environment = limits, environment
        self.language = language
        """Language of the code."""
        spawn = spawn or partial(spawn_module, MODULES[language])
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
        self._line_limit = LINE_SLACK_BYTES
        self._listener: RunnerListener | None = None
        self._taken = {1: 0, 2: 0}
        self._control_left = CONTROL_BYTES
        self._output_left = {1: PIPE_BYTES, 2: PIPE_BYTES}
        self._template: RunnerProcess | None = None
        self._is_ready = False
        self.can_fork = False
        """Whether the interpreter can be the template of others, once it is ready."""
        self.exit_code: int | None = None
        """Exit code of the process, once it has ended."""

    def fork(self) -> "RunnerProcess":
        """Make this interpreter a template, unless it is one, and return a runner that it forks.

        The runner takes a job at once. Its pid is 0 until it is ready.
        """
        self.wake()
        forked = RunnerProcess(
            limits=self._limits, environment=self._environment, language=self.language, spawn=self._request_fork
        )
        forked._template = self
        return forked

    def wake(self) -> None:
        """Let the process go on, and its template, which reports its end. Both are stopped at the end of a run."""
        if self._template is not None:
            self._template.wake()
        if self.pid:
            kill_process(self.pid, signal.SIGCONT)

    def find_process(self) -> Process | None:
        """Return the process, or None if it has ended. Its template, if that is stopped, has not reported it yet."""
        return read_process(self.pid) if self.exit_code is None and self.pid else None

    def start_another(self) -> "RunnerProcess":
        """Start a new interpreter like this one."""
        return RunnerProcess(limits=self._limits, environment=self._environment, language=self.language)

    def _request_fork(
        self, limits: RunnerLimits, environment: Mapping[str, str], control: int, outputs: list[int]
    ) -> int:
        socket.send_fds(self._control, [encode({"type": FORK})], [control, *outputs])
        return 0

    def listen(self, listener: RunnerListener, *, result_bytes: int = 0) -> None:
        """Send all messages and output to `listener` from now on. `result_bytes` bounds the result in a line."""
        self._line_limit = result_bytes + LINE_SLACK_BYTES
        loop = asyncio.get_running_loop()
        if self._listener is None:
            # By its number: asyncio makes a text of what it is given, and a socket needs four system calls for that.
            loop.add_reader(self._control.fileno(), self._read_control)
            for stream, descriptor in self._outputs.items():
                loop.add_reader(descriptor, self._on_readable, stream)
        self._listener = listener

    def has_listener(self, listener: RunnerListener) -> bool:
        """Return whether `listener` is the current one."""
        return self._listener is listener

    async def send(self, message: dict[str, Any]) -> None:
        """Send the job, or the answer to a request of the runner. Wait for the end of one before the next."""
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().sock_sendall(self._control, encode(message))

    def spawn_helper(self, module: str, control: int) -> None:
        """Start a module under the limits of the code, with a control channel of its own and without output."""
        spawn_module(module, self._limits, self._environment, control, ())

    def interrupt(self) -> None:
        """Interrupt the code, and make the runner report its stack."""
        if self.exit_code is None and self.pid:
            interrupt_main_thread(self.pid, (STACK_SIGNAL, signal.SIGINT))

    def resume(self) -> None:
        """Let the stopped interpreter of a session go on. What it has sent since its last job is dropped."""
        if self.pid:
            self.drain_output()
            self._control_left = LAST_CONTROL_BYTES
            self._read_control()
            self._begin_turn()
            self._line.clear()
        self.wake()

    def handle_exit(self, code: int) -> None:
        """Record that the process was reaped, and notify the listener."""
        self.exit_code = code
        self.drain_output()
        self._control_left = LAST_CONTROL_BYTES
        self._read_control()
        self._begin_turn()
        if self._listener is not None:
            self._listener.on_exit(code)

    def drain_output(self) -> None:
        """Read the output that the pipes hold, also if code still writes to them."""
        for stream in tuple(self._outputs):
            for _ in range(4):
                if not self._read_output(stream):
                    break

    def take_output(self, written: dict[int, int]) -> None:
        """Read the output that the runner had `written` to each stream when it sent a message, to keep the order.

        The numbers may be wrong: reading stops at the end of the available output, and after as much as a pipe holds
        in each turn.
        """
        for stream, total in written.items():
            while (missing := min(total - self._taken[stream], self._output_left[stream])) > 0:
                before = self._taken[stream]
                if not self._read_output(stream, max_bytes=missing):
                    break
                self._output_left[stream] -= self._taken[stream] - before

    def close(self) -> None:
        """Close the pipes unread."""
        loop = asyncio.get_running_loop()
        for descriptor in self._outputs.values():
            loop.remove_reader(descriptor)
            os.close(descriptor)
        self._outputs.clear()
        loop.remove_reader(self._control.fileno())
        self._control.close()

    def _on_readable(self, stream: int) -> None:
        # Messages first: they say how much output precedes them. Then at most the output that was available before
        # the messages were read: later output may follow a message that had not arrived yet.
        descriptor, taken = self._outputs[stream], self._taken[stream]
        available = _count_available(descriptor)
        self._read_control()
        if self._control_left <= 0:
            # More messages may wait, which say how much of this output precedes them.
            return
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
        """Read messages until the budget of this turn of the event loop is used up.

        The rest waits for the next turn: timers and other readers come first.
        """
        loop = asyncio.get_running_loop()
        while self._control_left > 0:
            try:
                data = self._control.recv(READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                loop.remove_reader(self._control.fileno())
                return
            if self._control_left == CONTROL_BYTES:
                loop.call_soon(self._begin_turn)
            self._control_left -= max(len(data), LINE_COST_BYTES * self._split_lines(data))

    def _begin_turn(self) -> None:
        self._control_left = CONTROL_BYTES
        self._output_left = {1: PIPE_BYTES, 2: PIPE_BYTES}

    def _split_lines(self, data: bytes) -> int:
        """Handle the lines that end in `data`, and return their number, at least 1."""
        if self._listener is not None:
            self._listener.on_control(len(data))
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._line += line[: self._line_limit + 1 - len(self._line)]
            if self._line:
                self._handle_line()
        self._line += rest[: self._line_limit + 1 - len(self._line)]
        return len(lines) or 1

    def _handle_line(self) -> None:
        line = bytes(self._line)
        self._line.clear()
        if len(line) > self._line_limit or self._listener is None:
            return
        if _TYPE in line:
            message = parse_object(line)
            if message is not None:
                self._note_ready(message)
                self._listener.on_message(message)
        elif (match := _STACK.match(line)) is not None:
            self._listener.on_message({"type": "stack", "line": int(match[1])})
        elif line == _MORE_CALLS:
            self._listener.on_message({"type": "deep"})

    def _note_ready(self, message: dict[str, Any]) -> None:
        """Read the runner's first message, which precedes all code."""
        if self._is_ready or message.get("type") != "ready":
            return
        self._is_ready = True
        pid = message.get("pid")
        if not self.pid and type(pid) is int and pid > 1:
            self.pid = pid
        self.can_fork = message.get("forks") is True


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
