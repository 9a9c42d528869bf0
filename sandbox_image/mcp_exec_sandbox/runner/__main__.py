"""Entry of the runner: `python3 -P -m mcp_exec_sandbox.runner LIMITS`, with the control channel as descriptor 3.

Everything that does not need the code comes first: limits, imports, event loop. Then the runner blocks until the job
arrives. It does not exit after the job: it does what an exit does (`ending`), sends its report and waits for its kill.
In a session it waits for the next job. Asked for a fork, it becomes the template of the runners instead.
"""

import contextlib
import faulthandler
import gc
import os
import sys
from pathlib import Path
from typing import Any

from mcp_exec_sandbox import bundle, preimport, sdk
from mcp_exec_sandbox.import_locks import lock_imports
from mcp_exec_sandbox.protocol import CONTROL_FD, FORK, STACK_SIGNAL, RunnerLimits
from mcp_exec_sandbox.runner.job import JobRunner, RunnerJob
from mcp_exec_sandbox.runner.limits import apply_limits, limit_cpu_count, serialize_forks
from mcp_exec_sandbox.runner.loop import AgentLoop, install_loop
from mcp_exec_sandbox.runner.seccomp import install_filter
from mcp_exec_sandbox.runner.streams import Channel, StandardStreams
from mcp_exec_sandbox.runner.template import can_fork, serve_forks
from mcp_exec_sandbox.tools.libraries import ImportHintFinder, explain_installs
from mcp_exec_sandbox.tools.tool_session import warm_up_connection


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
    preimport.import_sdk()
    # A module of the pool may start threads.
    lock_imports()
    try:
        costs = preimport.import_of_pool(limits.preimport)
    except preimport.PreimportFailed as error:
        channel.send({"type": "failed", "message": str(error)})
        os._exit(1)
    loop = AgentLoop()
    install_loop(loop)
    runner = JobRunner(channel=channel, loop=loop, workspace=Path.cwd(), streams=streams)
    runner.warm_up()
    loop.run_until_complete(warm_up_connection())
    bundle.forget_start()
    sys.meta_path.append(ImportHintFinder())
    explain_installs()
    apply_limits(limits)
    serialize_forks()
    install_filter(os.getppid())
    gc.collect()
    gc.freeze()
    gc.enable()
    runner.prepare()
    imported = [cost.to_message() for cost in costs]
    channel.send({"type": "ready", "forks": can_fork(), "preimport": imported})
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
