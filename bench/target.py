"""Target of a load: the installed release with real pods, or a temporary release on simulated nodes."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import BenchCluster, TimedExecution, connect_release, stage_rows, table
from processes import ProcessMeter, daemons
from simulated import POOL, release


@dataclass(frozen=True, kw_only=True)
class LoadTarget:
    """A warm pool and the processes that serve it."""

    bench: BenchCluster
    pool: str
    pids: Mapping[str, int]


@asynccontextmanager
async def target(
    nodes: str, *, pool: str, warm: int, node_count: int, reuse: bool = False, product: Path | None = None
) -> AsyncIterator[LoadTarget]:
    """Open a pool with `warm` warm pods on `real` or `simulated` nodes. A real pool is restored afterwards.

    With `reuse`, its pods serve their owners again. With `product`, a checkout, the temporary release is of that one.
    """
    if nodes == "simulated":
        async with release(warm=warm, nodes=node_count, reuse=reuse, product=product) as made:
            yield LoadTarget(bench=made.bench, pool=POOL, pids=made.pids)
        return
    async with connect_release() as bench:
        before = (await bench.pool(pool))["spec"]
        changed = {"warm": {"min": warm}, "reuse": {"scope": "Owner" if reuse else "Never"}}
        try:
            await bench.change(pool, changed)
            yield LoadTarget(bench=bench, pool=pool, pids=daemons())
        finally:
            await bench.change(pool, {name: before[name] for name in changed})


def describe(runs: Sequence[TimedExecution], meter: ProcessMeter) -> dict[str, Any]:
    """Return the figures of one load: failures, latencies by stage, and what the processes used."""
    return {
        "failed": sum(bool(run.problem) for run in runs),
        "problems": sorted({run.problem for run in runs if run.problem})[:3],
        "cold": sum(run.answer.get("start") == "Cold" for run in runs),
        "stages": stage_rows(runs),
        "processes": meter.rows(),
        "samples": [round(run.milliseconds, 2) for run in runs],
    }


def show(head: str, found: Mapping[str, Any]) -> None:
    """Print the figures of one load, in milliseconds."""
    print(f"\n{head}, {found['failed']} failed, {found['cold']} cold")
    print(table(found["stages"]))
    print(table(found["processes"]))
    for problem in found["problems"]:
        print(problem[:500])
