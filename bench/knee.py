"""The knee: the highest rate of executions that a control plane holds, for this release and for a floor in one run.

A probe sends executions at random times at a fixed rate, whether or not earlier ones have ended (open loop), to
simulated nodes. It holds if 99 of 100 end within `--p99` milliseconds of their scheduled time, none fails, and none
waits for a cold pod. A rate that does not hold is tried once more, as one slow second of a machine is no knee. The rate
doubles until one does not hold; then the gap between the rates is halved until it is less than a tenth. What a control
plane does once (a first connection, a watch cache) happens in a probe before the search, which does not count.

The floor is the same open loop by a bare client, with the requests alone that any design with an object per execution
makes: creation of the object, two writes of its status, its deletion; with single use, also creation, binding, status
and deletion of a pod. Its latency ends with the second write of the status. No operator, no gateway, no watch.

    KUBECONFIG=... python bench/knee.py --modes single reuse session --json knee.json
"""

import argparse
import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from floor import Floor, FloorExecution, floor_running
from harness import TimedExecution, parser, percentile, run, table, write_json
from processes import ProcessMeter
from sustained import MODES, OWNERS, SESSIONS, WARM, arrivals, load
from target import LoadTarget, target
from writes import count_by_user

FIRST: Final = {"single": 16.0, "reuse": 32.0, "session": 32.0}
"""Executions per second of the first probe."""
GAP: Final = 1.1
"""The search ends when the lowest rate that failed is less than this many times the highest that held."""
SETTLE_SECONDS: Final = 300
SIDES: Final = ("floor", "mcp-exec")

Load = Callable[[list[float]], Awaitable[Sequence[TimedExecution]]]
"""Sends executions at these seconds from its start, and returns them when all have ended."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of the comparison: how it is loaded, and the processes that serve the load."""

    name: str
    load: Load
    settle: Callable[[], Awaitable[None]]
    """Waits until nothing of an earlier probe is left."""
    pids: Mapping[str, int]
    namespaces: tuple[str, ...]
    """Where it writes."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One open loop at one rate."""

    rate: float
    runs: Sequence[TimedExecution]
    processes: Mapping[str, Mapping[str, Any]]
    writes: Mapping[str, int]
    """Writes by user."""

    @property
    def p99(self) -> float:
        """The 99th percentile in milliseconds."""
        return percentile([each.milliseconds for each in self.runs], 0.99)

    @property
    def starts(self) -> Counter[str]:
        """Executions by the kind of their start."""
        return Counter(str(each.answer.get("start")) for each in self.runs)

    @property
    def failed(self) -> int:
        """Number of executions that failed."""
        return sum(bool(each.problem) for each in self.runs)

    def holds(self, limit: float) -> bool:
        """Return whether the rate holds with a p99 of `limit` milliseconds."""
        return not self.failed and not self.starts["Cold"] and self.p99 <= limit

    def row(self) -> dict[str, Any]:
        """Return its figures: latencies in milliseconds, processor milliseconds and writes of an execution."""
        number, samples = len(self.runs), [each.milliseconds for each in self.runs]
        spent = {name: round(1000 * row["cpu s"] / number, 2) for name, row in self.processes.items()}
        return {
            "rate": round(self.rate, 2),
            "executions": number,
            "p50": round(percentile(samples, 0.5), 1),
            "p99": round(self.p99, 1),
            "failed": self.failed,
            "cold": self.starts["Cold"],
            "processor ms": {**spent, "all": round(sum(spent.values()), 2)},
            "writes": {user: round(count / number, 2) for user, count in self.writes.items()},
            "problems": sorted({each.problem for each in self.runs if each.problem})[:3],
        }


async def find_knee(
    probe: Callable[[float], Awaitable[Probe]], *, first: float, limit: float, most: int
) -> list[Probe]:
    """Search by doubling or halving, then by bisection, with at most so many probes. Return all in their order."""
    probes, low, high, rate = list[Probe](), 0.0, float("inf"), first
    while len(probes) < most and (not low or high / low >= GAP):
        probes.append(await probe(rate))
        if not probes[-1].holds(limit) and len(probes) < most:
            probes.append(await probe(rate))
        if probes[-1].holds(limit):
            low = rate
        else:
            high = rate
        rate = 2 * low if high == float("inf") else (low + high) / 2
    return probes


def choose(probes: Sequence[Probe], limit: float) -> Probe | None:
    """Return the probe of the highest rate below which all held, or None."""
    held = {each.rate: each for each in probes if each.holds(limit)}
    failed = min((each.rate for each in probes if each.rate not in held), default=float("inf"))
    return held[max(rates)] if (rates := [rate for rate in held if rate < failed]) else None


async def run_probe(side: Side, rate: float, *, seconds: float, seed: int, audit_log: Path | None) -> Probe:
    """Load a side at one rate, and print how it went."""
    await side.settle()
    moments = arrivals(rate=rate, seconds=seconds, seed=seed)
    offset = os.stat(audit_log).st_size if audit_log is not None else 0
    meter = ProcessMeter(pids=side.pids)
    runs = await side.load(moments)
    writes = count_by_user(audit_log, offset, namespaces=side.namespaces) if audit_log is not None else {}
    probe = Probe(rate=rate, runs=runs, processes=meter.rows(), writes=writes)
    shown = {name: value for name, value in probe.row().items() if name not in ("processor ms", "writes", "problems")}
    print(f"{side.name}: {shown}", flush=True)
    return probe


@asynccontextmanager
async def our_side(options: argparse.Namespace, mode: str) -> AsyncIterator[Side]:
    """Run the release on simulated nodes, and load it."""
    warm, owners = options.warm or WARM["simulated"][mode], OWNERS["simulated"]
    sessions = SESSIONS["simulated"] if mode == "session" else 0
    reuse = mode == "reuse"
    async with target(
        "simulated", pool="", warm=warm, node_count=options.node_count, reuse=reuse, product=options.product
    ) as at:
        await settle(at)
        # what a session costs once is no part of the load
        await load(at.bench, pool=at.pool, moments=[0.0] * owners * sessions, owners=owners, sessions=sessions)
        yield Side(
            name="mcp-exec",
            load=partial(_load, at, owners=owners, sessions=sessions),
            settle=partial(settle, at),
            pids=at.pids,
            namespaces=(at.bench.namespace,),
        )


async def _load(at: LoadTarget, moments: list[float], *, owners: int, sessions: int) -> Sequence[TimedExecution]:
    return await load(at.bench, pool=at.pool, moments=moments, owners=owners, sessions=sessions)


async def settle(at: LoadTarget) -> None:
    """Wait until the pool has its warm pods, and no others."""
    await at.bench.wait_until_settled(at.pool, seconds=SETTLE_SECONDS)


@asynccontextmanager
async def floor_side(mode: str) -> AsyncIterator[Side]:
    """Load a control plane that runs nothing of this release."""
    async with floor_running() as floor:
        send: Callable[[int, float], FloorExecution] = partial(floor.send, with_pod=mode == "single")
        yield Side(
            name="floor",
            load=partial(_load_floor, floor, send),
            settle=floor.settle,
            pids=floor.pids,
            namespaces=(floor.namespace,),
        )


async def _load_floor(
    floor: Floor, send: Callable[[int, float], FloorExecution], moments: list[float]
) -> Sequence[TimedExecution]:
    start, tasks = time.perf_counter() + 0.1, []
    for number, moment in enumerate(moments):
        due = start + moment
        if (pause := due - time.perf_counter()) > 0:
            await asyncio.sleep(pause)
        tasks.append(asyncio.create_task(send(number, due)))
    runs = await asyncio.gather(*tasks)
    await floor.settle()
    return runs


async def measure_mode(options: argparse.Namespace, mode: str) -> dict[str, Any]:
    """Find both knees of one mode."""
    figures: dict[str, Any] = {}
    sides = {"floor": floor_side(mode), "mcp-exec": our_side(options, mode)}
    for name in options.sides:
        async with sides[name] as side:
            probe = partial(run_probe, side, seconds=options.seconds, seed=options.seed, audit_log=options.audit_log)
            first = options.first or FIRST[mode]
            if options.warm_up:
                await run_probe(side, first, seconds=options.warm_up, seed=options.seed, audit_log=None)
            probes = await find_knee(probe, first=first, limit=options.p99, most=options.probes)
        knee = choose(probes, options.p99)
        figures[name] = {"knee": knee.row() if knee else None, "probes": [each.row() for each in probes]}
    ours, floor = (figures.get(name, {}).get("knee") for name in ("mcp-exec", "floor"))
    return figures | {"ratio": round(ours["rate"] / floor["rate"], 2) if ours and floor else None}


def show(mode: str, found: Mapping[str, Any]) -> None:
    """Print the knees of a mode, then the processor time and the writes of an execution at each knee."""
    knees = {name: found[name]["knee"] for name in SIDES if found.get(name, {}).get("knee")}
    print(f"\n{mode}" + (f": the knee is {found['ratio']} of the floor's" if found["ratio"] else ""))
    fields = ("rate", "p50", "p99", "executions")
    if knees:
        print(table({name: {field: knee[field] for field in fields} for name, knee in knees.items()}))
    for title in ("processor ms", "writes"):
        rows = dict.fromkeys(part for knee in knees.values() for part in knee[title])
        if rows:
            print(f"\n{title} of an execution")
            print(table({row: {name: knee[title].get(row, "") for name, knee in knees.items()} for row in rows}))


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Find the knees of all modes, one after the other."""
    return {mode: await measure_mode(options, mode) for mode in options.modes}


def main() -> None:
    """Run the command."""
    options = parser(__doc__)
    options.add_argument("--modes", nargs="+", choices=MODES, default=["single"], help="(default: single)")
    options.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES, help="(default: both)")
    options.add_argument("--product", type=Path, help="checkout whose operator and gateway run (default: this one)")
    options.add_argument("--p99", type=float, default=250, help="milliseconds that a rate must hold (default: 250)")
    options.add_argument("--seconds", type=float, default=30, help="length of a probe (default: 30)")
    options.add_argument("--first", type=float, help="executions per second of the first probe (default: by mode)")
    options.add_argument("--probes", type=int, default=20, help="most probes of one side (default: 20)")
    options.add_argument("--warm-up", type=float, default=10, help="seconds of the first probe, which does not count")
    options.add_argument("--warm", type=int, help="warm pods (default: by mode)")
    options.add_argument("--node-count", type=int, default=50, help="simulated nodes (default: 50)")
    options.add_argument(
        "--audit-log",
        type=Path,
        default=os.environ.get("BENCH_AUDIT_LOG") or None,
        help="the API server's audit log, to count writes by user (default: BENCH_AUDIT_LOG)",
    )
    options.add_argument("--seed", type=int, default=1, help="seed of the times of arrival")
    arguments = options.parse_args()
    for mode, found in (figures := run(measure(arguments))).items():
        show(mode, found)
    write_json(arguments.json, {"p99 ms": arguments.p99, **figures})


if __name__ == "__main__":
    main()
