"""Sustained load: executions arrive at random at a fixed rate, whether or not earlier ones have ended (open loop).

The times of arrival are a Poisson process, drawn before the run. Latency counts from the scheduled time of an
execution, not from the time it was sent, so that a slow client hides nothing. The modes run one after the other: with
`single` each pod serves one execution, with `reuse` it serves its owner again, with `session` executions take turns in
sessions. Users take turns as owners; each has `--sessions` sessions.

    KUBECONFIG=... python bench/sustained.py --nodes simulated --modes single reuse session --json sustained.json
"""

import argparse
import asyncio
import random
import time
from collections import Counter
from typing import Any

from harness import BenchCluster, TimedExecution, parser, percentile, run, write_json
from processes import ProcessMeter
from target import describe, show, target

MODES = ("single", "reuse", "session")
RATES = {
    "simulated": {"single": 45.0, "reuse": 75.0, "session": 75.0},
    "real": {"single": 1.0, "reuse": 20.0, "session": 20.0},
}
WARM = {
    "simulated": {"single": 300, "reuse": 30, "session": 30},
    "real": {"single": 12, "reuse": 4, "session": 4},
}
OWNERS = {"simulated": 8, "real": 4}
SESSIONS = {"simulated": 4, "real": 1}
"""Sessions of each owner."""
WINDOW_SECONDS = 10


def arrivals(*, rate: float, seconds: float, seed: int) -> list[float]:
    """Draw the times of executions: seconds from the start, with exponentially distributed gaps."""
    chance, found = random.Random(seed), []
    moment = chance.expovariate(rate)
    while moment < seconds:
        found.append(moment)
        moment += chance.expovariate(rate)
    return found


async def load(
    bench: BenchCluster, *, pool: str, moments: list[float], owners: int, sessions: int = 0
) -> list[TimedExecution]:
    """Send each execution at its time, for one of so many users in turn, in one of the user's sessions in turn."""
    start, tasks = time.perf_counter() + 0.1, []
    for number, moment in enumerate(moments):
        due = start + moment
        if (pause := due - time.perf_counter()) > 0:
            await asyncio.sleep(pause)
        spec = {"user": f"user-{number % owners}"}
        if sessions:
            spec["session"] = f"bench-{number // owners % sessions}"
        tasks.append(asyncio.create_task(bench.time_execution(pool, since=due, **spec)))
    return await asyncio.gather(*tasks)


def windows(moments: list[float], runs: list[TimedExecution]) -> list[float]:
    """Return the median of each ten seconds, which shows whether latency grows."""
    found: dict[int, list[float]] = {}
    for moment, each in zip(moments, runs, strict=True):
        found.setdefault(int(moment // WINDOW_SECONDS), []).append(each.milliseconds)
    return [round(percentile(samples, 0.5), 1) for _, samples in sorted(found.items())]


def medians(runs: list[TimedExecution]) -> dict[str, float]:
    """Return the median of each kind of start."""
    found: dict[str, list[float]] = {}
    for each in runs:
        found.setdefault(str(each.answer.get("start")), []).append(each.milliseconds)
    return {start: round(percentile(samples, 0.5), 1) for start, samples in sorted(found.items())}


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run the load once in each mode."""
    return {mode: await measure_mode(options, mode) for mode in options.modes}


async def measure_mode(options: argparse.Namespace, mode: str) -> dict[str, Any]:
    """Run the load once."""
    rate, warm = options.rate or RATES[options.nodes][mode], options.warm or WARM[options.nodes][mode]
    owners, reuse = options.owners or OWNERS[options.nodes], mode == "reuse"
    async with target(options.nodes, pool=options.pool, warm=warm, node_count=options.node_count, reuse=reuse) as at:
        await at.bench.wait_until_settled(at.pool, seconds=300)
        sessions = (options.sessions or SESSIONS[options.nodes]) if mode == "session" else 0
        # what a session costs once is no part of the load
        await load(at.bench, pool=at.pool, moments=[0.0] * owners * sessions, owners=owners, sessions=sessions)
        moments = arrivals(rate=rate, seconds=options.seconds, seed=options.seed)
        meter = ProcessMeter(pids=at.pids)
        runs = await load(at.bench, pool=at.pool, moments=moments, owners=owners, sessions=sessions)
        figures = describe(runs, meter)
        await at.bench.delete_sessions("bench-")
    starts = Counter(run.answer.get("start") for run in runs)
    return {
        "nodes": options.nodes,
        "mode": mode,
        "rate": rate,
        "seconds": options.seconds,
        "warm": warm,
        "owners": owners,
        "sessions": owners * sessions,
        "executions": len(runs),
        **figures,
        "reused": starts["Reused"],
        "starts": medians(runs),
        "median by ten seconds": windows(moments, runs),
    }


def main() -> None:
    """Run the command."""
    options = parser(__doc__, pool="gvisor")
    options.add_argument("--nodes", choices=sorted(RATES), default="simulated")
    options.add_argument("--node-count", type=int, default=50, help="simulated nodes (default: 50)")
    options.add_argument("--modes", nargs="+", choices=MODES, default=["single"], help="(default: single)")
    options.add_argument("--rate", type=float, help="executions per second (default: by nodes and mode)")
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--warm", type=int, help="warm pods (default: by nodes and mode)")
    options.add_argument("--owners", type=int, help="users in turn (default: 8 simulated, 4 real)")
    options.add_argument("--sessions", type=int, help="sessions of each user (default: 4 simulated, 1 real)")
    options.add_argument("--seed", type=int, default=1, help="seed of the times of arrival")
    arguments = options.parse_args()
    for mode, found in (figures := run(measure(arguments))).items():
        show(f"{mode}: {found['executions']} executions, {found['rate']}/s, {found['reused']} reused", found)
        print(f"median by ten seconds: {found['median by ten seconds']}")
    write_json(arguments.json, figures)


if __name__ == "__main__":
    main()
