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
async def target(nodes: str, *, pool: str, warm: int, node_count: int) -> AsyncIterator[LoadTarget]:
    """Open a pool with `warm` warm pods on `real` or `simulated` nodes. A real pool is restored afterwards."""
    if nodes == "simulated":
        async with release(warm=warm, nodes=node_count) as made:
            yield LoadTarget(bench=made.bench, pool=POOL, pids=made.pids)
        return
    async with connect_release() as bench:
        before = (await bench.pool(pool))["spec"]["warm"]["min"]
        try:
            await bench.scale(pool, warm)
            yield LoadTarget(bench=bench, pool=pool, pids=daemons())
        finally:
            await bench.scale(pool, before)
