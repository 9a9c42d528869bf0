"""Entry of the runner: `python3 -P -m mcp_exec_sandbox.runner LIMITS`, with the control channel as descriptor 3.

Everything that does not need the code comes first: limits, imports, event loop. Then the runner blocks until the job
arrives. It does not exit after the job: it does what an exit does (`ending`), sends its report and waits for its kill.
In a session it waits for the next job. Asked for a fork, it becomes the template of the runners instead.
"""

import contextlib
import faulthandler
import gc
import importlib
import mmap
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mcp_exec_sandbox import bundle, sdk
from mcp_exec_sandbox.import_locks import lock_imports
from mcp_exec_sandbox.protocol import CONTROL_FD, FORK, STACK_SIGNAL, RunnerLimits
from mcp_exec_sandbox.runner.job import JobRunner, RunnerJob
from mcp_exec_sandbox.runner.limits import apply_limits, limit_cpu_count, serialize_forks
from mcp_exec_sandbox.runner.loop import AgentLoop, install_loop
from mcp_exec_sandbox.runner.seccomp import install_filter
from mcp_exec_sandbox.runner.streams import Channel, StandardStreams
from mcp_exec_sandbox.runner.template import can_fork, serve_forks
from mcp_exec_sandbox.runner.user import name_user
from mcp_exec_sandbox.tools.libraries import ImportHintFinder, explain_programs
from mcp_exec_sandbox.tools.network import watch_network
from mcp_exec_sandbox.tools.tool_session import warm_up_connection

_MESSAGE_CHARACTERS = 300
"""The kubelet keeps the last 2 KB of a log, where a character may take six bytes."""

SDK = ("client", "skills", "tool_discovery")


class PreimportFailed(Exception):
    """A module that the pool names can't be imported. The text names it and has the error."""


def import_sdk() -> None:
    """Import the modules that code calls tools with."""
    for name in SDK:
        importlib.import_module(name)


def import_of_pool(modules: Sequence[str]) -> list[dict[str, Any]]:
    """Import the modules that the pool names, in their order. Return the time and the growth of memory of each.

    A module that an earlier one imported costs a later one nothing.

    Raises:
        PreimportFailed: one can't be imported.
    """
    return [_import(module) for module in modules]


def _import(module: str) -> dict[str, Any]:
    size, started = _read_resident_bytes(), time.perf_counter()
    try:
        importlib.import_module(module)
    except (Exception, SystemExit) as error:
        text = f"the module {module} of spec.preimport can't be imported: {type(error).__name__}: {error}"
        raise PreimportFailed(text[:_MESSAGE_CHARACTERS]) from error
    milliseconds = round((time.perf_counter() - started) * 1000)
    return {"module": module, "ms": milliseconds, "memoryBytes": max(0, _read_resident_bytes() - size)}


def _read_resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


def main(limits: RunnerLimits) -> None:
    """Prepare the interpreter, take one job, run it, report."""
    channel = Channel(CONTROL_FD)
    faulthandler.register(STACK_SIGNAL, file=CONTROL_FD, all_threads=False)
    # The stack at a crash, for example of a recursion in C code.
    faulthandler.enable(file=CONTROL_FD, all_threads=False)
    streams = StandardStreams()
    streams.install()
    # Before the modules of the pool, which may read the number when they are imported.
    limit_cpu_count()
    sys.path.append(str(Path(sdk.__file__).parent))
    import_sdk()
    # A module of the pool may start threads.
    lock_imports()
    try:
        costs = import_of_pool(limits.preimport)
    except PreimportFailed as error:
        channel.send({"type": "failed", "message": str(error)})
        os._exit(1)
    loop = AgentLoop()
    install_loop(loop)
    runner = JobRunner(channel=channel, loop=loop, workspace=Path.cwd(), streams=streams)
    runner.warm_up()
    loop.run_until_complete(warm_up_connection())
    bundle.forget_start()
    sys.meta_path.append(ImportHintFinder())
    explain_programs()
    watch_network()
    name_user(os.environ)
    apply_limits(limits)
    serialize_forks()
    install_filter(os.getppid())
    gc.collect()
    gc.freeze()
    gc.enable()
    runner.prepare()
    channel.send({"type": "ready", "forks": can_fork(), "preimport": costs})
    with contextlib.suppress(EOFError):
        message = channel.receive()
        if message.get("type") == FORK:
            serve_forks(channel, channel.take_descriptors(), loop)
            channel, loop = Channel(CONTROL_FD), AgentLoop()
            install_loop(loop)
            runner = JobRunner(channel=channel, loop=loop, workspace=Path.cwd(), streams=streams)
            runner.prepare()
            channel.send({"type": "ready", "pid": os.getpid()})
            message = channel.receive()
        run_jobs(runner, channel, message)
    os._exit(0)


def run_jobs(runner: JobRunner, channel: Channel, message: dict[str, Any]) -> None:
    """Run a job, and the later ones of its session. Raises EOFError once the supervisor has closed the channel."""
    while (job := RunnerJob.from_message(message)).session:
        runner.run(job)
        message = channel.receive()
        # The report on the next job's stack. The code may have taken the signal.
        faulthandler.register(STACK_SIGNAL, file=CONTROL_FD, all_threads=False)
    runner.run(job)
    channel.wait_for_end()


if __name__ == "__main__":
    main(RunnerLimits.from_argument(sys.argv[1]))
