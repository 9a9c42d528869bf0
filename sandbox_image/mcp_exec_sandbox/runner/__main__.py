"""Entry of the runner: `python3 -P -m mcp_exec_sandbox.runner LIMITS`, with the control channel as descriptor 3.

Everything that does not need the code comes first: limits, imports, event loop. Then the runner blocks until the job
arrives. It does not exit after the job but sends its report and waits for its kill, so left-over threads don't matter.
"""

import contextlib
import faulthandler
import gc
import importlib
import os
import sys
from pathlib import Path

from mcp_exec_sandbox import sdk
from mcp_exec_sandbox.protocol import CONTROL_FD, STACK_SIGNAL, RunnerLimits
from mcp_exec_sandbox.runner import fork_limiter, resources, seccomp
from mcp_exec_sandbox.runner.channel import Channel
from mcp_exec_sandbox.runner.job import JobRunner, RunnerJob
from mcp_exec_sandbox.runner.loop import AgentLoop, install_loop
from mcp_exec_sandbox.runner.streams import StandardStreams
from mcp_exec_sandbox.tools.import_hints import ImportHintFinder
from mcp_exec_sandbox.tools.warm_up import warm_up_connection

PREIMPORTED = """
argparse base64 bisect calendar collections concurrent.futures contextlib copy csv dataclasses datetime decimal enum
fractions functools glob hashlib heapq html inspect io itertools json logging math operator os pathlib pickle pprint
queue random re shutil signal socket statistics string struct subprocess tempfile textwrap threading time traceback
types typing unicodedata urllib.parse uuid zoneinfo
client tool_discovery
"""


def main() -> None:
    """Prepare the interpreter, take one job, run it, report."""
    channel = Channel(CONTROL_FD)
    faulthandler.register(STACK_SIGNAL, file=CONTROL_FD, all_threads=False)
    streams = StandardStreams()
    streams.install()
    sys.path.append(str(Path(sdk.__file__).parent))
    for name in PREIMPORTED.split():
        importlib.import_module(name)
    loop = AgentLoop()
    install_loop(loop)
    runner = JobRunner(channel=channel, loop=loop, workspace=Path.cwd(), streams=streams)
    runner.warm_up()
    loop.run_until_complete(warm_up_connection())
    sys.meta_path.append(ImportHintFinder())
    resources.apply_limits(RunnerLimits.from_argument(sys.argv[1]))
    fork_limiter.serialize_forks()
    seccomp.install_filter(os.getppid())
    gc.collect()
    gc.freeze()
    channel.send({"type": "ready"})
    with contextlib.suppress(EOFError):
        runner.run(RunnerJob.from_message(channel.receive()))
        channel.wait_for_end()
    os._exit(0)


if __name__ == "__main__":
    main()
