"""Target of a load: the installed release with real pods, or a temporary release on simulated nodes."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from harness import BenchCluster, connect_release
from processes import daemons
from simulated import POOL, release


@dataclass(frozen=True, kw_only=True)
class LoadTarget:
    """A warm pool and the processes that serve it."""

    bench: BenchCluster
    pool: str
    pids: Mapping[str, int]


@asynccontextmanager
async def target(
    nodes: str, *, pool: str, warm: int, node_count: int, reuse: bool = False
) -> AsyncIterator[LoadTarget]:
    """Open a pool with `warm` warm pods on `real` or `simulated` nodes. A real pool is restored afterwards.

    With `reuse`, its pods serve their owners again.
    """
    if nodes == "simulated":
        async with release(warm=warm, nodes=node_count, reuse=reuse) as made:
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
