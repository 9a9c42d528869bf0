"""Entry of the runner: `python3 -P -m mcp_exec_sandbox.runner LIMITS`, with the control channel as descriptor 3.

All that can be done before the code is known is done first: limits, imports, event loop. Then it blocks until the job
comes. It never ends by itself: it reports and waits to be killed, so that threads left behind don't matter.
"""

import contextlib
import faulthandler
import gc
import importlib
import os
import sys
from pathlib import Path

from mcp_exec_sandbox import sdk
from mcp_exec_sandbox.protocol import CONTROL_FD, STANDING_SIGNAL, RunnerLimits
from mcp_exec_sandbox.runner import fork_limiter as forks
from mcp_exec_sandbox.runner import resources
from mcp_exec_sandbox.runner import seccomp as shield
from mcp_exec_sandbox.runner.channel import Channel
from mcp_exec_sandbox.runner.job import Job, Runner
from mcp_exec_sandbox.runner.loop import AgentLoop, install
from mcp_exec_sandbox.runner.streams import Streams
from mcp_exec_sandbox.tools.import_hints import ServersHint
from mcp_exec_sandbox.tools.warm_up import rehearse

PREIMPORTED = """
argparse base64 bisect calendar collections concurrent.futures contextlib copy csv dataclasses datetime decimal enum
fractions functools glob hashlib heapq html inspect io itertools json logging math operator os pathlib pickle pprint
queue random re shutil signal socket statistics string struct subprocess tempfile textwrap threading time traceback
types typing unicodedata urllib.parse uuid zoneinfo
client tool_discovery
"""


def main() -> None:
    """Prepare, take one job, run it, report."""
    channel = Channel(CONTROL_FD)
    faulthandler.register(STANDING_SIGNAL, file=CONTROL_FD, all_threads=False)
    streams = Streams()
    streams.install()
    sys.path.append(str(Path(sdk.__file__).parent))
    for name in PREIMPORTED.split():
        importlib.import_module(name)
    loop = AgentLoop()
    install(loop)
    runner = Runner(channel=channel, loop=loop, workspace=Path.cwd(), streams=streams)
    runner.rehearse()
    loop.run_until_complete(rehearse())
    sys.meta_path.append(ServersHint())
    resources.apply(RunnerLimits.from_argument(sys.argv[1]))
    forks.serialise()
    shield.install(os.getppid())
    gc.collect()
    gc.freeze()
    channel.send({"type": "ready"})
    with contextlib.suppress(EOFError):
        runner.run(Job.from_message(channel.receive()))
        channel.wait_for_end()
    os._exit(0)


if __name__ == "__main__":
    main()
