"""Life of the supervisor: harden the process, start the runner, listen, serve until stopped."""

import asyncio
import ctypes
import itertools
import os
import signal
import struct
from collections.abc import Callable, Sequence
from typing import Any

from mcp_exec_sandbox.protocol import RunnerLimits
from mcp_exec_sandbox.supervisor.execution.runner_process import RunnerProcess
from mcp_exec_sandbox.supervisor.execution.spawning import Spawn, build_runner_environment
from mcp_exec_sandbox.supervisor.execution.watchdog import compute_runner_memory
from mcp_exec_sandbox.supervisor.http.connection import BACKLOG, ConnectionRegistry, HttpConnection, bind_port
from mcp_exec_sandbox.supervisor.http.routes import SupervisorApi
from mcp_exec_sandbox.supervisor.network_check import IsolationGuard
from mcp_exec_sandbox.supervisor.settings import Settings, log, log_failure
from mcp_exec_sandbox.supervisor.state import SandboxState

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_SFD_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
_SIGNAL_RECORD = struct.Struct("=IiiI")
_RECORD_BYTES = 255
"""Read size of one record: 128 bytes on Linux, 130 on gVisor; less than two."""

_SIGNAL_SET_BYTES = 128


class SystemCallError(Exception):
    """The kernel refused a system call that the sandbox depends on."""


def protect_memory() -> None:
    """Make this process undumpable: processes of the same user can't trace it or read its memory and environment.

    gVisor shows the environment anyway, so it is erased. Everything needed from it has been read before.
    """
    _prctl(_PR_SET_DUMPABLE, 0)
    variables = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ")
    for index in itertools.count():
        address = variables[index]
        if address is None:
            break
        ctypes.memset(address, 0, len(ctypes.string_at(address)))


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, which PID 1 is anyway."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def open_signal_descriptor(signals: Sequence[signal.Signals]) -> int:
    """Block every signal that can be blocked and return a descriptor that yields `signals`.

    No process can end the supervisor with a blocked signal, and the descriptor reports the sender.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    for number in signals:
        # Never called. gVisor drops a blocked signal that is ignored by default (SIGCHLD) unless it has a handler.
        signal.signal(number, lambda *_: None)
    members = ctypes.create_string_buffer(_SIGNAL_SET_BYTES)
    for number in signals:
        index = number - 1
        members[index // 8] = bytes([members[index // 8][0] | 1 << index % 8])
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = int(libc.signalfd(-1, members, _SFD_NONBLOCK_CLOEXEC))
    if descriptor < 0:
        raise SystemCallError(f"signalfd: {os.strerror(ctypes.get_errno())}")
    return descriptor


def read_signals(descriptor: int) -> list[tuple[int, int]]:
    """Return the signals since the last call, each with the pid of its sender (0: a process outside the container)."""
    received: list[tuple[int, int]] = []
    while True:
        try:
            record = os.read(descriptor, _RECORD_BYTES)
        except BlockingIOError:
            return received
        number, _, _, sender = _SIGNAL_RECORD.unpack_from(record)
        received.append((number, sender))


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise SystemCallError(f"prctl {option}: {os.strerror(ctypes.get_errno())}")


START_SECONDS = 60.0
ISOLATION_SECONDS = 10.0
"""Time for the network to isolate a new sandbox."""
SPARE_TASKS = 8
"""Tasks above the configured maximum that the kernel allows, because it counts all tasks of the user: the supervisor
and the pod's pause process too. This limit stops a fork bomb; the watchdog's lower limit reports it."""
PREIMPORT_FAILED = "PreimportFailed"
"""Reason in the last line of the log, which the pod's status has, so that the operator can report it."""
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def serve(settings: Settings, *, spawn: Spawn) -> int:
    """Run the sandbox until it is stopped, and return the process's exit code."""
    os.chdir(settings.workspace)
    descriptor = open_signal_descriptor((*_STOP_SIGNALS, signal.SIGCHLD))
    # Before any other process exists that could bind it.
    listener = bind_port(settings.host, settings.port)
    runner = _start_runner(settings, spawn)
    # The runner has executed its own program by now, so it does not inherit the supervisor's protection.
    protect_memory()
    adopt_orphans()
    sandbox = SandboxState(settings=settings, runner=runner)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_on_loop_failure)
    loop.add_reader(descriptor, _on_signals, descriptor, sandbox, stopping.set)
    connections = ConnectionRegistry(SupervisorApi(sandbox=sandbox, token_sha256=settings.token_sha256))
    guard = IsolationGuard(forbidden=settings.forbidden_addresses, answering=settings.answering_address)

    def create_connection() -> HttpConnection:
        guard.note_connection()
        return connections.create()

    server = await loop.create_server(create_connection, sock=listener, backlog=BACKLOG)
    try:
        return await _serve_until_stopped(sandbox, guard, stopping, server)
    finally:
        sandbox.stop()
        server.close()
        connections.close_all()


async def _serve_until_stopped(
    sandbox: SandboxState, guard: IsolationGuard, stopping: asyncio.Event, server: asyncio.Server
) -> int:
    stop = asyncio.ensure_future(stopping.wait())
    ready = asyncio.ensure_future(_prepare(sandbox, guard))
    await asyncio.wait([stop, ready], return_when=asyncio.FIRST_COMPLETED)
    if ready.done() and (problem := ready.result()):
        log(problem, **({"reason": PREIMPORT_FAILED} if sandbox.has_failed_to_import else {}))
        return 1
    if ready.done():
        costs = {"preimport": imported} if (imported := sandbox.runners.idle.import_costs) else {}
        log("ready", port=server.sockets[0].getsockname()[1], **costs)
    failure = asyncio.ensure_future(sandbox.runners.failed.wait())
    lost = asyncio.ensure_future(guard.wait_until_lost(sandbox.rest))
    await asyncio.wait([stop, failure, lost], return_when=asyncio.FIRST_COMPLETED)
    if lost.done() and not stop.done():
        log(lost.result())
        if not sandbox.lose_isolation(lost.result()):
            return 1
        # The code is killed; the events of its run are served until the pod is deleted.
        await asyncio.wait([stop, failure], return_when=asyncio.FIRST_COMPLETED)
    if failure.done():
        log("the runner died before its job")
        return 1
    return 0


async def _prepare(sandbox: SandboxState, guard: IsolationGuard) -> str:
    """Wait for the runner and for the network's isolation, then open the sandbox. Return the problem, if any."""
    isolation = asyncio.ensure_future(guard.wait_until_isolated(seconds=ISOLATION_SECONDS))
    if not await sandbox.runners.idle.wait(START_SECONDS):
        isolation.cancel()
        return sandbox.explain_failed_start(START_SECONDS)
    if problem := await isolation:
        return problem
    sandbox.open()
    return ""


def _start_runner(settings: Settings, spawn: Spawn) -> RunnerProcess:
    limits = RunnerLimits(
        memory_bytes=compute_runner_memory(settings.memory_bytes),
        max_tasks=settings.max_processes + SPARE_TASKS,
        storage_bytes=settings.storage_bytes,
        preimport=settings.preimport,
    )
    environment = build_runner_environment(os.environ, home=str(settings.workspace), temporary=str(settings.temporary))
    return RunnerProcess(limits=limits, environment=environment, language=settings.language, spawn=spawn)


def _on_signals(descriptor: int, sandbox: SandboxState, stop: Callable[[], None]) -> None:
    for number, sender in read_signals(descriptor):
        if number == signal.SIGCHLD:
            continue
        # PID 1 stops only for a sender outside the container. Otherwise the code could stop its own sandbox.
        if os.getpid() != 1 or sender == 0:
            stop()
    sandbox.collect_children()


def _on_loop_failure(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an exception of a callback. asyncio's own handler would log its text, which may quote the code's data."""
    error = context.get("exception")
    if isinstance(error, BaseException):
        log_failure("a callback of the event loop failed", error)
