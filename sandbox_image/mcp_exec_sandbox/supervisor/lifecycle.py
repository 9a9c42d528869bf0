"""Life of the supervisor: harden the process, start the runner, listen, serve until stopped."""

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

from mcp_exec_sandbox.protocol import RunnerLimits
from mcp_exec_sandbox.supervisor import linux
from mcp_exec_sandbox.supervisor.execution.runner_process import RunnerProcess, Spawn, build_runner_environment
from mcp_exec_sandbox.supervisor.execution.watchdog import compute_runner_memory
from mcp_exec_sandbox.supervisor.http.connection import BACKLOG, ConnectionRegistry, HttpConnection, bind_port
from mcp_exec_sandbox.supervisor.http.routes import SupervisorApi
from mcp_exec_sandbox.supervisor.network_check import IsolationGuard
from mcp_exec_sandbox.supervisor.settings import Settings, log, log_failure
from mcp_exec_sandbox.supervisor.state import SandboxState

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
    descriptor = linux.open_signal_descriptor((*_STOP_SIGNALS, signal.SIGCHLD))
    # Before any other process exists that could bind it.
    listener = bind_port(settings.host, settings.port)
    runner = _start_runner(settings, spawn)
    # The runner has executed its own program by now, so it does not inherit the supervisor's protection.
    linux.protect_memory()
    linux.adopt_orphans()
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
        costs = {"preimport": sandbox.import_costs} if sandbox.import_costs else {}
        log("ready", port=server.sockets[0].getsockname()[1], **costs)
    failure = asyncio.ensure_future(sandbox.wait_for_failure())
    lost = asyncio.ensure_future(guard.wait_until_lost())
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
    if not await sandbox.wait_until_ready(START_SECONDS):
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
    return RunnerProcess(limits=limits, environment=environment, spawn=spawn)


def _on_signals(descriptor: int, sandbox: SandboxState, stop: Callable[[], None]) -> None:
    for number, sender in linux.read_signals(descriptor):
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
