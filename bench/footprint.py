"""Resources of the idle operator for growing numbers of pods and finished executions.

For each number of pods the pool is filled. For each number of finished executions their objects are created while the
operator is stopped, and the operator is restarted. Each figure covers one minute when nothing happens except the
operator's own resyncs, every 20 seconds.

    KUBECONFIG=... python bench/footprint.py --pods 0 1000 5000 --finished 0 1000 5000 10000 --json footprint.json
"""

import argparse
import asyncio
from typing import Any

from fill import AT_ONCE
from harness import parser, run, table, write_json
from processes import ProcessMeter
from simulated import NAMESPACE, POOL, SimulatedRelease, release

from mcp_exec_api.meta import micro_time, now
from mcp_exec_common.kube.client import custom_resource_path
from mcp_exec_common.kube.objects import Object

EXECUTIONS = custom_resource_path("codeexecutions", namespace=NAMESPACE)
REST_SECONDS = 60
SETTLE_SECONDS = 25
"""After the first resync, whose lists are garbage afterwards."""
PARTS = ("operator", "gateway", "kube-apiserver", "etcd")


def execution(number: int) -> Object:
    """Build an execution like those of agents, with a page of code."""
    code = "\n".join(f"print({line}, 'a line of code that does something')" for line in range(40))
    spec = {"code": code, "poolRef": {"name": POOL}}
    return {
        "apiVersion": "mcp-exec.dev/v1beta1",
        "kind": "CodeExecution",
        "metadata": {"name": f"finished-{number}", "namespace": NAMESPACE},
        "spec": spec,
    }


def finished_status() -> Object:
    """Build the status of a succeeded execution, with a page of output."""
    moment = micro_time(now())
    text = "\n".join(f"{line} a line of code that does something" for line in range(40))
    output = {"stdout": text, "stdoutBytes": len(text), "stderrBytes": 0, "truncated": False}
    return {
        "phase": "Succeeded",
        "podName": "simulated-gone",
        "start": "Warm",
        "boundAt": moment,
        "startedAt": moment,
        "finishedAt": moment,
        "output": output,
    }


async def make_finished(made: SimulatedRelease, first: int, last: int) -> None:
    """Create ended executions with these numbers."""
    numbers = iter(range(first, last))

    async def make() -> None:
        for number in numbers:
            await made.bench.kube.create(EXECUTIONS, execution(number))
            path = f"{EXECUTIONS}/finished-{number}/status"
            await made.bench.kube.patch(path, {"status": finished_status()})

    await asyncio.gather(*(make() for _ in range(AT_ONCE)))


async def measure_at_rest(made: SimulatedRelease, *, settle: float, seconds: float) -> dict[str, Any]:
    """Measure what the processes use while idle, as a row of the table."""
    await asyncio.sleep(settle)
    meter = ProcessMeter(pids={name: pid for name, pid in made.pids.items() if name in PARTS})
    await asyncio.sleep(seconds)
    return {f"{name} {what}": used[what] for name, used in meter.rows().items() for what in ("cores", "rss MB")}


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all numbers of pods, then all numbers of executions with the most pods."""
    rows: dict[str, dict[str, Any]] = {}

    async def note(what: str) -> None:
        rows[what] = await measure_at_rest(made, settle=options.settle_seconds, seconds=options.rest_seconds)
        print(what, rows[what], flush=True)

    async with release(warm=0, nodes=options.node_count) as made:
        for pods in sorted(options.pods):
            await made.bench.scale(POOL, pods)
            elapsed = await made.bench.wait_until_warm(POOL, pods, seconds=900)
            print(f"{pods} pods are warm after {elapsed:.1f} s", flush=True)
            await note(f"{pods} pods, filled")
            await made.stop_operator()
            await made.start_operator()
            await made.bench.wait_until_warm(POOL, pods, seconds=300)
            await note(f"{pods} pods, operator restarted")
        before = 0
        for finished in sorted(options.finished):
            await made.stop_operator()
            await make_finished(made, before, finished)
            before = finished
            await made.start_operator()
            await made.bench.wait_until_warm(POOL, max(options.pods), seconds=300)
            await note(f"{max(options.pods)} pods, {finished} finished executions")
    print(table(rows))
    return rows


def main() -> None:
    """Run the command."""
    options = parser(__doc__)
    options.add_argument("--pods", type=int, nargs="+", default=[0, 1000, 5000])
    options.add_argument("--finished", type=int, nargs="+", default=[0, 1000, 5000, 10000])
    options.add_argument("--node-count", type=int, default=50, help="simulated nodes (default: 50)")
    options.add_argument(
        "--rest-seconds", type=float, default=REST_SECONDS, help="duration of each measurement (default: 60)"
    )
    options.add_argument(
        "--settle-seconds", type=float, default=SETTLE_SECONDS, help="time before each measurement (default: 25)"
    )
    arguments = options.parse_args()
    write_json(arguments.json, run(measure(arguments)))


if __name__ == "__main__":
    main()
