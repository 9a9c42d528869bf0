"""Latency of a warm `print(1)` through the gateway, by stage, compared with the floor of the control plane.

The floor is the part that no design with a CodeExecution object can avoid, measured in the same run between the
samples: create the object, receive it from a watch, patch its status, one HTTP round trip to a pod, patch its status
again, and receive that from another watch. Samples of one concurrency are taken in rounds. Between rounds the pool
fills up, so that no pod starts during a sample.

    KUBECONFIG=... python bench/latency.py --pool gvisor --rounds 100 --concurrency 1 4 16 --json latency.json
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from harness import NAMESPACE, STAGES, BenchCluster, connect_release, parser, summary, table, write_json

from mcp_exec_api.constants import LABEL_POOL, SUPERVISOR_PORT
from mcp_exec_common.kube.client import custom_resource_path, resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import Reflector


class LatencyFloor:
    """Lower bound of the latency of an execution as an object, in a namespace that no operator serves."""

    def __init__(self, bench: BenchCluster, *, namespace: str, pod: str) -> None:
        self.bench, self.namespace, self.pod = bench, namespace, pod
        self.created: dict[str, asyncio.Event] = {}
        self.ended: dict[str, asyncio.Event] = {}

    def on_create(self, item: Object, deleted: bool) -> None:
        """Handle an event of the first watch, an operator's."""
        if not deleted and item["metadata"]["name"] in self.created:
            self.created[item["metadata"]["name"]].set()

    def on_end(self, item: Object, deleted: bool) -> None:
        """Handle an event of the second watch, a gateway's."""
        if not deleted and item.get("status", {}).get("phase") == "Succeeded":
            self.ended[item["metadata"]["name"]].set()

    async def sample(self, name: str) -> float:
        """Return the milliseconds of one pass."""
        path = custom_resource_path("codeexecutions", namespace=self.namespace)
        self.created[name], self.ended[name] = asyncio.Event(), asyncio.Event()
        start = time.perf_counter()
        async with asyncio.timeout(30):
            await self.bench.kube.create(path, manifest(name, self.namespace))
            await self.created[name].wait()
            await self.bench.kube.patch(f"{path}/{name}/status", {"status": {"phase": "Running", "podName": "pod"}})
            async with self.bench.session.get(f"http://{self.pod}:{SUPERVISOR_PORT}/healthz") as response:
                await response.read()
            await self.bench.kube.patch(f"{path}/{name}/status", {"status": {"phase": "Succeeded"}})
            await self.ended[name].wait()
        return (time.perf_counter() - start) * 1000


def manifest(name: str, namespace: str) -> Object:
    """Build the object that the floor creates."""
    metadata = {"name": name, "namespace": namespace}
    return {
        "apiVersion": "mcp-exec.dev/v1alpha1",
        "kind": "CodeExecution",
        "metadata": metadata,
        "spec": {"code": "print(1)"},
    }


@asynccontextmanager
async def open_floor(bench: BenchCluster, pool: str) -> AsyncIterator[LatencyFloor]:
    """Open the floor, against a warm pod of the pool."""
    made = await bench.kube.create(resource_path("namespaces"), {"metadata": {"generateName": "bench-floor-"}})
    namespace = made["metadata"]["name"]
    pods, _ = await bench.kube.list(resource_path("pods", namespace=NAMESPACE), selector=f"{LABEL_POOL}={pool}")
    pod = next(pod["status"]["podIP"] for pod in reversed(pods) if pod["status"].get("podIP"))
    floor = LatencyFloor(bench, namespace=namespace, pod=pod)
    path = custom_resource_path("codeexecutions", namespace=namespace)
    first = Reflector(kube=bench.kube, path=path, on_change=floor.on_create)
    second = Reflector(kube=bench.kube, path=path, on_change=floor.on_end)
    async with first.run_in_background(), second.run_in_background():
        await asyncio.gather(first.synced.wait(), second.synced.wait())
        try:
            yield floor
        finally:
            await bench.kube.delete(resource_path("namespaces", name=namespace))


async def time_execution(bench: BenchCluster, pool: str) -> tuple[float, dict[str, Any]]:
    """Run one execution and return the milliseconds until its answer, and the answer."""
    start = time.perf_counter()
    answer = await bench.execute("print(1)", pool=pool)
    elapsed = (time.perf_counter() - start) * 1000
    if answer["output"]["stdout"] != "1\n":
        raise RuntimeError(f"not what was printed: {answer}")
    return elapsed, answer


async def measure(bench: BenchCluster, *, pool: str, rounds: int, concurrency: int) -> dict[str, Any]:
    """Run rounds of executions and of floors in turn, at one concurrency."""
    # Only as many pods as are used: in gVisor an idle pod uses a twentieth of a core, and the machine may be small.
    await bench.scale(pool, concurrency + 1)
    await bench.wait_until_settled(pool)
    totals: list[float] = []
    floors: list[float] = []
    stages: dict[str, list[float]] = {stage: [] for stage in STAGES}
    cold = 0
    async with open_floor(bench, pool) as floor:
        for index in range(rounds):
            await bench.wait_until_settled(pool)
            floors += await asyncio.gather(
                *(floor.sample(f"floor-{concurrency}-{index}-{k}") for k in range(concurrency))
            )
            for elapsed, answer in await asyncio.gather(*(time_execution(bench, pool) for _ in range(concurrency))):
                totals.append(elapsed)
                cold += answer["start"] != "Warm"
                for stage in STAGES:
                    stages[stage].append(answer["durations"].get(stage) or 0.0)
    return {"total": totals, "floor": floors, "stages": stages, "cold": cold}


async def main() -> None:
    """Run the command."""
    options = parser(__doc__)
    options.add_argument(
        "--rounds", type=int, default=100, help="rounds at concurrency 1; other concurrencies take as many samples"
    )
    options.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 16])
    arguments = options.parse_args()
    figures: dict[str, Any] = {"pool": arguments.pool}
    async with connect_release() as bench:
        before = (await bench.pool(arguments.pool))["spec"]["warm"]["min"]
        try:
            for concurrency in arguments.concurrency:
                rounds = max(arguments.rounds // concurrency, 5)
                found = await measure(bench, pool=arguments.pool, rounds=rounds, concurrency=concurrency)
                rows = {"client, total": summary(found["total"]), "floor": summary(found["floor"])}
                rows |= {f"  {stage}": summary(found["stages"][stage]) for stage in STAGES}
                ratio = rows["client, total"]["p50"] / rows["floor"]["p50"]
                print(f"\n{arguments.pool}, concurrency {concurrency}, ms ({found['cold']} cold starts)")
                print(table(rows))
                print(f"ratio to the floor at p50: {ratio:.2f}")
                figures[f"concurrency {concurrency}"] = {"summary": rows, "ratio": round(ratio, 2), "samples": found}
        finally:
            await bench.scale(arguments.pool, before)
    write_json(arguments.json, figures)


if __name__ == "__main__":
    asyncio.run(main())
