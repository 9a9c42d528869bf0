"""Sustained load: executions arrive at random at a fixed rate, whether or not earlier ones have ended (open loop).

The times of arrival are a Poisson process, drawn before the run. Latency counts from the scheduled time of an
execution, not from the time it was sent, so that a slow client hides nothing.

    KUBECONFIG=... python bench/sustained.py --nodes simulated --rate 45 --seconds 60 --json sustained.json
"""

import argparse
import asyncio
import random
import time
from typing import Any

from harness import BenchCluster, TimedExecution, parser, percentile, run, stage_rows, table, write_json
from processes import ProcessMeter
from target import target

RATES = {"simulated": 45.0, "real": 2.0}
WARM = {"simulated": 300, "real": 12}
WINDOW_SECONDS = 10


def arrivals(*, rate: float, seconds: float, seed: int) -> list[float]:
    """Draw the times of executions: seconds from the start, with exponentially distributed gaps."""
    chance, found = random.Random(seed), []
    moment = chance.expovariate(rate)
    while moment < seconds:
        found.append(moment)
        moment += chance.expovariate(rate)
    return found


async def load(bench: BenchCluster, *, pool: str, moments: list[float]) -> list[TimedExecution]:
    """Send each execution at its time."""
    start, tasks = time.perf_counter() + 0.1, []
    for moment in moments:
        due = start + moment
        if (pause := due - time.perf_counter()) > 0:
            await asyncio.sleep(pause)
        tasks.append(asyncio.create_task(bench.time_execution(pool, since=due)))
    return await asyncio.gather(*tasks)


def windows(moments: list[float], runs: list[TimedExecution]) -> list[float]:
    """Return the median of each ten seconds, which shows whether latency grows."""
    found: dict[int, list[float]] = {}
    for moment, each in zip(moments, runs, strict=True):
        found.setdefault(int(moment // WINDOW_SECONDS), []).append(each.milliseconds)
    return [round(percentile(samples, 0.5), 1) for _, samples in sorted(found.items())]


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run the load once."""
    rate, warm = options.rate or RATES[options.nodes], options.warm or WARM[options.nodes]
    async with target(options.nodes, pool=options.pool, warm=warm, node_count=options.node_count) as at:
        await at.bench.wait_until_settled(at.pool, seconds=300)
        moments = arrivals(rate=rate, seconds=options.seconds, seed=options.seed)
        meter = ProcessMeter(pids=at.pids)
        runs = await load(at.bench, pool=at.pool, moments=moments)
        processes = meter.rows()
    return {
        "nodes": options.nodes,
        "rate": rate,
        "seconds": options.seconds,
        "warm": warm,
        "executions": len(runs),
        "failed": sum(bool(run.problem) for run in runs),
        "problems": sorted({run.problem for run in runs if run.problem})[:3],
        "cold": sum(run.answer.get("start") == "Cold" for run in runs),
        "stages": stage_rows(runs),
        "median by ten seconds": windows(moments, runs),
        "processes": processes,
        "samples": [round(run.milliseconds, 2) for run in runs],
    }


def main() -> None:
    """Run the command."""
    options = parser(__doc__)
    options.add_argument("--nodes", choices=sorted(RATES), default="simulated")
    options.add_argument("--node-count", type=int, default=50, help="simulated nodes (default: 50)")
    options.add_argument("--rate", type=float, help="executions per second (default: 45 simulated, 2 real)")
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--warm", type=int, help="warm pods (default: 300 simulated, 12 real)")
    options.add_argument("--seed", type=int, default=1, help="seed of the times of arrival")
    arguments = options.parse_args()
    found = run(measure(arguments))
    print(f"{found['executions']} executions, {found['rate']}/s: {found['failed']} failed, {found['cold']} cold")
    print(table(found["stages"]))
    print(f"median by ten seconds: {found['median by ten seconds']}")
    print(table(found["processes"]))
    for problem in found["problems"]:
        print(problem[:500])
    write_json(arguments.json, found)


if __name__ == "__main__":
    main()
