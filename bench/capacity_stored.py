"""Objects that are stored and do nothing: finished executions, and sessions without a pod."""

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from capacity_probe import CapacityProbe
from etcd import Etcd, StoredCopies
from figures import Row, Rows
from fill import AT_ONCE
from footprint import EXECUTIONS, make_finished
from harness import client, percentile
from simulated import NAMESPACE, POOL, SimulatedRelease, release
from sustained import arrivals, load
from tests.support.control_plane import ControlPlane
from waits import within

from mcp_exec_common.kube.client import custom_resource_path
from mcp_exec_common.kube.objects import Object

SESSIONS: Final = custom_resource_path("sandboxsessions", namespace=NAMESPACE)
OWNERS: Final = 4
END_SECONDS: Final = 1800.0
"""Limit of the deletion of all objects, and of the writes that an operator makes after its start."""
_REST_SECONDS: Final = 5.0
"""After executions, until their pods are replaced."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Measured rows by the number of things, and rows after these are gone."""

    steps: dict[int, Row]
    after: dict[str, Row]
    more: Row
    """Figures that belong to no number."""


@asynccontextmanager
async def probing(
    plane: ControlPlane, options: argparse.Namespace, *, warm: int
) -> AsyncIterator[tuple[SimulatedRelease, CapacityProbe]]:
    """Run a release on simulated nodes, with a probe of it and of its control plane."""
    async with release(warm=warm, nodes=options.node_count) as made, client() as session:
        etcd = Etcd(session=session, url=plane.etcd)
        yield made, CapacityProbe(made=made, etcd=etcd, settle=options.settle_seconds)


async def count_objects(made: SimulatedRelease, path: str, **params: str) -> int:
    """Return how many objects a collection has."""
    found: dict[str, Any] = await made.bench.kube.get(path, limit="1", **params)
    return len(found["items"]) + int(found["metadata"].get("remainingItemCount") or 0)


async def wait_until_empty(made: SimulatedRelease, path: str, what: str, **params: str) -> None:
    """Wait until a collection has no objects, or none that the selectors choose."""
    left = -1
    async with within(END_SECONDS, what, state=lambda: f"{left} left"):
        while True:
            if not (left := await count_objects(made, path, **params)):
                return
            await asyncio.sleep(0.5)


async def measure_executions(plane: ControlPlane, options: argparse.Namespace) -> Measurement:
    """Store finished executions, a number after the other, and delete all at the end."""
    steps: dict[int, Row] = {}
    async with probing(plane, options, warm=options.warm) as (made, probe):
        await made.bench.wait_until_settled(POOL)
        written = await measure_written(made, probe, options)
        await made.stop_operator()  # it would run the execution that has no status yet
        await make_finished(made, 0, 1)
        copies = await StoredCopies.load(
            probe.etcd, "codeexecutions", await made.bench.kube.get(f"{EXECUTIONS}/finished-0")
        )
        for before, count in zip([0, *options.sizes], options.sizes, strict=False):
            await add_copies(probe, copies, EXECUTIONS, before, count)
            row = await probe.restart()
            row |= await time_runs(made, options)
            row["list ms"] = await probe.time_list()
            row["kubectl get s"] = await probe.time_kubectl(str(plane.kubeconfig), "codeexecutions")
            steps[count] = row | await probe.measure()
            print(f"{count} executions: {steps[count]}", flush=True)
        after = await measure_return(probe, copies, max(options.sizes))
    return Measurement(steps=steps, after=after, more={"written KB": written})


async def add_copies(probe: CapacityProbe, copies: StoredCopies, path: str, first: int, last: int) -> None:
    """Write copies with these numbers, and drop their history. Raises RuntimeError if the API server lacks some."""
    await copies.write(first, last)
    await probe.etcd.compact()
    if (known := await count_objects(probe.made, path)) < last:
        raise RuntimeError(f"the API server has {known} objects of {last} copies")


async def measure_return(probe: CapacityProbe, copies: StoredCopies, count: int) -> Rows:
    """Delete all copies, and return rows of what is left."""
    await copies.delete()
    return await probe.measure_return(count)


async def measure_written(made: SimulatedRelease, probe: CapacityProbe, options: argparse.Namespace) -> float:
    """Return the kB that an execution adds to etcd until the next compaction, its pod and its events included."""
    before = await probe.etcd.measure()
    await run_load(made, number=options.runs, rate=options.rate)
    await asyncio.sleep(_REST_SECONDS)
    await made.bench.wait_until_settled(POOL)
    return round(1000 * ((await probe.etcd.measure()).used - before.used) / options.runs, 1)


async def run_load(made: SimulatedRelease, *, number: int, rate: float) -> list[float]:
    """Run so many executions at a rate, in a pool with single use. Return the milliseconds of those that succeeded."""
    moments = arrivals(rate=rate, seconds=2 * number / rate + 10, seed=1)[:number]
    runs = await load(made.bench, pool=POOL, moments=moments, owners=OWNERS)
    if failed := [each.problem for each in runs if each.problem]:
        raise RuntimeError(f"{len(failed)} of {number} executions failed: {failed[0]}")
    return [each.milliseconds for each in runs]


async def time_runs(made: SimulatedRelease, options: argparse.Namespace) -> Row:
    """Return the median of warm runs, while so much is stored."""
    await made.bench.wait_until_settled(POOL)
    samples = await run_load(made, number=options.probes, rate=options.probe_rate)
    return {"p50 ms": round(percentile(samples, 0.5), 1)}


def session_object() -> Object:
    """Build a session that no execution has used."""
    return {
        "apiVersion": "mcp-exec.dev/v1beta1",
        "kind": "SandboxSession",
        "metadata": {"name": "stored", "namespace": NAMESPACE},
        "spec": {"poolRef": {"name": POOL}, "description": "what an agent keeps between its runs"},
    }


async def measure_sessions(plane: ControlPlane, options: argparse.Namespace) -> Measurement:
    """Store sessions without a pod, a number after the other. A pod costs as much as one of `pods` in addition."""
    steps: dict[int, Row] = {}
    async with probing(plane, options, warm=0) as (made, probe):
        first = await made.bench.kube.create(SESSIONS, session_object())
        await wait_until_empty(made, SESSIONS, "the session's status", fieldSelector="status.phase!=Pending")
        copies = await StoredCopies.load(probe.etcd, "sandboxsessions", first)
        for before, count in zip([0, *options.sizes], options.sizes, strict=False):
            await add_copies(probe, copies, SESSIONS, before, count)
            row = await probe.restart()
            row["kubectl get s"] = await probe.time_kubectl(str(plane.kubeconfig), "sandboxsessions")
            steps[count] = row | await probe.measure()
            print(f"{count} sessions: {steps[count]}", flush=True)
        after = await measure_return(probe, copies, max(options.sizes))
    return Measurement(steps=steps, after=after, more={})


async def work_at_once(jobs: list[Any]) -> None:
    """Do jobs, a fixed number at a time."""
    waiting = iter(jobs)

    async def work() -> None:
        for job in waiting:
            await job()

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
