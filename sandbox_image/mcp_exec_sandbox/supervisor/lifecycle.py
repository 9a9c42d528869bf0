"""The life of the supervisor: harden, start the runner, listen, serve until told to stop."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable

from mcp_exec_sandbox.protocol import RunnerLimits
from mcp_exec_sandbox.supervisor import linux as system
from mcp_exec_sandbox.supervisor.connection import Connections
from mcp_exec_sandbox.supervisor.network_check import until_isolated
from mcp_exec_sandbox.supervisor.routes import Api
from mcp_exec_sandbox.supervisor.runner_process import RunnerProcess, runner_environment
from mcp_exec_sandbox.supervisor.settings import Settings
from mcp_exec_sandbox.supervisor.state import Sandbox
from mcp_exec_sandbox.supervisor.watchdog import runner_memory_bytes

START_SECONDS = 60.0
EXPOSED_SECONDS = 10.0
"""How long the network may take to cut a new sandbox off."""
SPARE_TASKS = 8
"""Above the bound, as the kernel counts the user's tasks: the supervisor and the pod's pause process too. It stops a
fork bomb; the watchdog, a little below, tells it."""

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def serve(settings: Settings) -> int:
    """Run the sandbox; returns the process's exit code."""
    os.chdir(settings.workspace)
    descriptor = system.open_signals((*_STOP_SIGNALS, signal.SIGCHLD))
    runner = _start_runner(settings)
    # The runner is another program by now; what protects the supervisor does not pass on to it.
    system.protect_memory()
    system.adopt_orphans()
    sandbox = Sandbox(settings=settings, runner=runner)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, _on_signals, descriptor, sandbox, stopping.set)
    connections = Connections(Api(sandbox=sandbox, token_sha256=settings.token_sha256))
    server = await loop.create_server(connections.make, sock=_listen(settings.host, settings.port))
    try:
        return await _serve_until_stopped(settings, sandbox, stopping, server)
    finally:
        sandbox.stop()
        server.close()
        connections.close_all()


async def _serve_until_stopped(
    settings: Settings, sandbox: Sandbox, stopping: asyncio.Event, server: asyncio.Server
) -> int:
    stop = asyncio.ensure_future(stopping.wait())
    ready = asyncio.ensure_future(_become_ready(settings, sandbox))
    await asyncio.wait([stop, ready], return_when=asyncio.FIRST_COMPLETED)
    if ready.done() and (trouble := ready.result()):
        _log(trouble)
        return 1
    if ready.done():
        _log("ready", port=server.sockets[0].getsockname()[1])
    failure = asyncio.ensure_future(sandbox.wait_for_failure())
    await asyncio.wait([stop, failure], return_when=asyncio.FIRST_COMPLETED)
    if failure.done():
        _log("the runner died before it had a job")
        return 1
    return 0


async def _become_ready(settings: Settings, sandbox: Sandbox) -> str:
    """Wait for the runner, and meanwhile for the network's walls; returns what is wrong, if anything is."""
    host, port = settings.forbidden_address or ("", 0)
    isolated = until_isolated(host, port, seconds=EXPOSED_SECONDS) if host else asyncio.sleep(0, result=True)
    started, safe = await asyncio.gather(sandbox.wait_until_ready(START_SECONDS), isolated)
    if not started:
        return "the runner did not start"
    if not safe:
        return f"{host}:{port} can be reached from here: no NetworkPolicy is enforced, so no code is run"
    sandbox.open()
    return ""


def _start_runner(settings: Settings) -> RunnerProcess:
    limits = RunnerLimits(
        memory_bytes=runner_memory_bytes(settings.memory_bytes),
        max_tasks=settings.max_processes + SPARE_TASKS,
        storage_bytes=settings.storage_bytes,
    )
    environment = runner_environment(os.environ, home=str(settings.workspace), temporary=str(settings.temporary))
    return RunnerProcess(limits=limits, environment=environment)


def _on_signals(descriptor: int, sandbox: Sandbox, stop: Callable[[], None]) -> None:
    for received in system.read_signals(descriptor):
        if received.signal == signal.SIGCHLD:
            continue
        # As PID 1 the only one to obey is outside the container; the code could otherwise end its own sandbox.
        if os.getpid() != 1 or received.sender == 0:
            stop()
    sandbox.collect_children()


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket; without a host on all addresses, IPv6 too where there is one."""
    if host:
        return socket.create_server((host, port), backlog=64)
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64)
    return socket.create_server(("", port), backlog=64)


def _log(message: str, **fields: object) -> None:
    sys.stdout.write(json.dumps({"message": message, **fields}) + "\n")
    sys.stdout.flush()
