"""Burst: N concurrent executions on N warm pods. Measures the latency of each and the time until all have ended.

On simulated nodes everything except the sandboxes is real: API server, scheduler, operator, gateway and this client,
all on one machine. On real nodes the benchmark uses the installed release and as many pods as the machine can hold.

    KUBECONFIG=... python bench/burst.py --nodes simulated --executions 300 --rounds 3 --json burst.json
"""

import argparse
import asyncio
import time
from typing import Any

from harness import BenchCluster, parser, run, write_json
from processes import ProcessMeter
from target import describe, show, target

EXECUTIONS = {"simulated": 300, "real": 12}


async def burst(bench: BenchCluster, *, pool: str, executions: int, pids: dict[str, int]) -> dict[str, Any]:
    """Run one burst after the pool has settled."""
    await bench.wait_until_settled(pool, seconds=300)
    meter, start = ProcessMeter(pids=pids), time.perf_counter()
    runs = await asyncio.gather(*(bench.time_execution(pool) for _ in range(executions)))
    elapsed = time.perf_counter() - start
    return {"all done within s": round(elapsed, 3), **describe(runs, meter)}


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run all rounds."""
    executions = options.executions or EXECUTIONS[options.nodes]
    async with target(options.nodes, pool=options.pool, warm=executions, node_count=options.node_count) as at:
        rounds = []
        for number in range(1, options.rounds + 1):
            rounds.append(await burst(at.bench, pool=at.pool, executions=executions, pids=at.pids))
            show(f"round {number}: all done within {rounds[-1]['all done within s']} s", rounds[-1])
    return {"nodes": options.nodes, "executions": executions, "rounds": rounds}


def main() -> None:
    """Run the command."""
    options = parser(__doc__, pool="gvisor")
    options.add_argument("--nodes", choices=sorted(EXECUTIONS), default="simulated")
    options.add_argument("--node-count", type=int, default=50, help="simulated nodes (default: 50)")
    options.add_argument("--executions", type=int, help="concurrent executions (default: 300 simulated, 12 real)")
    options.add_argument("--rounds", type=int, default=3)
    arguments = options.parse_args()
    write_json(arguments.json, run(measure(arguments)))


if __name__ == "__main__":
    main()
