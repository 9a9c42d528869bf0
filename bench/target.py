"""What a load is sent to: the installed release with its real pods, or one of its own on simulated nodes."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from harness import Bench, connected
from processes import daemons
from simulated import POOL, release


@dataclass(frozen=True, kw_only=True)
class Target:
    """A warm pool, and the processes that serve it."""

    bench: Bench
    pool: str
    pids: Mapping[str, int]


@asynccontextmanager
async def target(nodes: str, *, pool: str, warm: int, node_count: int) -> AsyncIterator[Target]:
    """A pool with so many warm pods, on `real` or `simulated` nodes; a real one is as it was before afterwards."""
    if nodes == "simulated":
        async with release(warm=warm, nodes=node_count) as made:
            yield Target(bench=made.bench, pool=POOL, pids=made.pids)
        return
    async with connected() as bench:
        before = (await bench.pool(pool))["spec"]["warm"]["min"]
        try:
            await bench.scale(pool, warm)
            yield Target(bench=bench, pool=pool, pids=daemons())
        finally:
            await bench.scale(pool, before)
