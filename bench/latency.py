"""Latency of a warm `print(1)` through the gateway, by stage, compared with the floor of the control plane.

The floor is the part that no design with a CodeExecution object can avoid, measured in the same run between the
samples: create the object, receive it from a watch, patch its status, one HTTP round trip to a pod, patch its status
again, and receive that from another watch. The pod is like the pool's sandboxes, in a namespace of its own. Samples of
one concurrency are taken in rounds. Between rounds the pool fills up, so that no pod starts during a sample.

All is measured from the same place: from this machine if it reaches pods and Services by their addresses, as a node
does, else from a pod. The tables name it.

    KUBECONFIG=... python bench/latency.py --pool gvisor --rounds 100 --concurrency 1 4 16 --json latency.json

With `--other`, each round also measures executions in a pool of another language, in turns as with a token: the
figures that count are those of both in one run.

    KUBECONFIG=... python bench/latency.py --pool gvisor --other typescript --concurrency 1

With `--token`, each round also measures executions of a person of an identity provider, in turns before and after those
of the API key: `--token FILE` has a token that the release accepts, by a rule whose first namespace is `agents`.
"""

import argparse
import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
from harness import (
    BenchCluster,
    TimedExecution,
    connect_inside,
    connect_release,
    parser,
    run,
    stage_rows,
    summary,
    table,
    write_json,
)
from inside import PERSON, is_node, own_namespace, run_inside, run_peer, store_result
from waits import within

from mcp_exec_api.constants import SUPERVISOR_PORT
from mcp_exec_common.kube.client import custom_resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import Reflector

Figures = dict[str, Any]
FOLDER = Path(__file__).parent
PROGRAMS = [FOLDER / name for name in ("latency.py", "harness.py", "inside.py", "waits.py")]
"""This program and what it imports."""
INSIDE_SECONDS = 1700
TOKEN_ROW = "client, total, by token"
OTHER_ROW = "client, total, other pool"
CODE = {"python": "print(1)", "typescript": "console.log(1)"}
"""What runs, by the language of the pool."""
LEAST_ROUNDS = 5


@dataclass(frozen=True, kw_only=True)
class Caller:
    """An execution that is repeated: its sender, its pool and its code."""

    bench: BenchCluster
    pool: str
    code: str = CODE["python"]

    async def time_execution(self) -> TimedExecution:
        """Measure one execution."""
        return await self.bench.time_execution(self.pool, code=self.code)


class LatencyFloor:
    """Lower bound of the latency of an execution as an object, in a namespace that no operator serves."""

    def __init__(self, bench: BenchCluster, *, namespace: str, peer: str) -> None:
        self.bench, self.namespace, self.peer = bench, namespace, peer
        self.created: dict[str, asyncio.Event] = {}
        self.ended: dict[str, asyncio.Event] = {}

    def on_create(self, item: Object, deleted: bool) -> None:
        """Handle an event of the first watch, an operator's. Another floor's objects may still be there."""
        if not deleted and item["metadata"]["name"] in self.created:
            self.created[item["metadata"]["name"]].set()

    def on_end(self, item: Object, deleted: bool) -> None:
        """Handle an event of the second watch, a gateway's."""
        name, phase = item["metadata"]["name"], item.get("status", {}).get("phase")
        if not deleted and phase == "Succeeded" and name in self.ended:
            self.ended[name].set()

    async def ask_peer(self) -> None:
        """Exchange a request and its answer with the peer."""
        async with self.bench.session.get(f"http://{self.peer}:{SUPERVISOR_PORT}/healthz") as response:
            await response.read()

    async def sample(self, name: str) -> float:
        """Return the milliseconds of one pass."""
        path = custom_resource_path("codeexecutions", namespace=self.namespace)
        self.created[name], self.ended[name] = asyncio.Event(), asyncio.Event()
        start = time.perf_counter()
        async with within(30, f"the two watches to bring {name}", state=lambda: self.describe(name)):
            await self.bench.kube.create(path, manifest(name, self.namespace))
            await self.created[name].wait()
            await self.bench.kube.patch(f"{path}/{name}/status", {"status": {"phase": "Running", "podName": "pod"}})
            await self.ask_peer()
            await self.bench.kube.patch(f"{path}/{name}/status", {"status": {"phase": "Succeeded"}})
            await self.ended[name].wait()
        return (time.perf_counter() - start) * 1000

    def describe(self, name: str) -> str:
        """Return how far an object has come."""
        return f"created: {self.created[name].is_set()}, ended: {self.ended[name].is_set()}"


def manifest(name: str, namespace: str) -> Object:
    """Build the object that the floor creates."""
    metadata = {"name": name, "namespace": namespace}
    return {
        "apiVersion": "mcp-exec.dev/v1beta1",
        "kind": "CodeExecution",
        "metadata": metadata,
        "spec": {"code": "print(1)"},
    }


@asynccontextmanager
async def open_floor(bench: BenchCluster, *, namespace: str, peer: str) -> AsyncIterator[LatencyFloor]:
    """Open the floor, with objects in this namespace and against the pod at this address."""
    floor = LatencyFloor(bench, namespace=namespace, peer=peer)
    path = custom_resource_path("codeexecutions", namespace=namespace)
    first = Reflector(kube=bench.kube, path=path, on_change=floor.on_create)
    second = Reflector(kube=bench.kube, path=path, on_change=floor.on_end)
    async with first.run_in_background(), second.run_in_background():
        async with within(30, f"the first lists of the executions in {namespace}"):
            await asyncio.gather(first.synced.wait(), second.synced.wait())
        async with within(30, f"an answer of the floor's pod {peer}"):
            while True:  # its container runs, and its server may not listen yet
                try:
                    await floor.ask_peer()
                    break
                except aiohttp.ClientConnectionError:
                    await asyncio.sleep(0.1)
        yield floor


async def list_callers(bench: BenchCluster, *, pool: str, token: str, other: str) -> dict[str, Caller]:
    """Return who takes turns in each round, by name."""
    callers = {"key": Caller(bench=bench, pool=pool)}
    if token:
        person = replace(bench, headers={"Authorization": f"Bearer {token}"})
        callers["token"] = Caller(bench=person, pool=pool)
    if other:
        language = (await bench.pool(other))["spec"].get("language", "python")
        callers["other"] = Caller(bench=bench, pool=other, code=CODE[language])
    return callers


async def measure(
    bench: BenchCluster, callers: dict[str, Caller], *, namespace: str, peer: str, rounds: int, concurrency: int
) -> Figures:
    """Run rounds of executions and of floors in turn, at one concurrency. Raises RuntimeError if an execution fails.

    Each round has executions of all callers, in their order and in the opposite one in turns.
    """
    pools = sorted({each.pool for each in callers.values()})
    for pool in pools:
        # Only as many pods as are used: in gVisor an idle pod uses a twentieth of a core, and the machine may be small.
        await bench.scale(pool, concurrency)
    runs: dict[str, list[TimedExecution]] = {name: [] for name in callers}
    floors: list[float] = []

    async def settle() -> None:
        for pool in pools:
            await bench.wait_until_settled(pool)

    async with open_floor(bench, namespace=namespace, peer=peer) as floor:
        for index in range(rounds):
            await settle()
            floors += await asyncio.gather(
                *(floor.sample(f"floor-{concurrency}-{index}-{k}") for k in range(concurrency))
            )
            for name in list(callers)[:: -1 if index % 2 else 1]:
                await settle()
                timed = await asyncio.gather(*(callers[name].time_execution() for _ in range(concurrency)))
                if problem := next((run.problem for run in timed if run.problem), ""):
                    raise RuntimeError(f"by {name}: {problem}")
                runs[name] += timed
    return build_figures(floors, runs)


def build_figures(floors: list[float], runs: dict[str, list[TimedExecution]]) -> Figures:
    """Summarize the samples of one concurrency: the floor, and executions by the API key and perhaps by others."""
    rows = {"floor": summary(floors), **stage_rows(runs["key"])}
    median = rows["client, total"]["p50"]
    figures = {
        "summary": rows,
        "ratio": round(median / rows["floor"]["p50"], 2),
        "samples": {
            "total": [run.milliseconds for run in runs["key"]],
            "floor": floors,
            "cold": sum(run.answer["start"] != "Warm" for each in runs.values() for run in each),
        },
    }
    if by_token := [run.milliseconds for run in runs.get("token", [])]:
        rows[TOKEN_ROW] = summary(by_token)
        figures["samples"]["by token"] = by_token
        figures["ratio of the token to the key"] = round(rows[TOKEN_ROW]["p50"] / median, 2)
    if other := [run.milliseconds for run in runs.get("other", [])]:
        rows[OTHER_ROW] = summary(other)
        figures["samples"]["other"] = other
        figures["more in the other pool, ms"] = round(rows[OTHER_ROW]["p50"] - median, 2)
    return figures


async def measure_all(bench: BenchCluster, options: argparse.Namespace, *, namespace: str, peer: str) -> Figures:
    """Measure each concurrency. The pools have their sizes again afterwards."""
    figures: Figures = {}
    callers = await list_callers(bench, pool=options.pool, token=options.token, other=options.other)
    pools = {each.pool for each in callers.values()}
    before = {pool: (await bench.pool(pool))["spec"]["warm"]["min"] for pool in pools}
    try:
        for concurrency in options.concurrency:
            figures[f"concurrency {concurrency}"] = await measure(
                bench,
                callers,
                namespace=namespace,
                peer=peer,
                rounds=max(options.rounds // concurrency, min(options.rounds, LEAST_ROUNDS)),
                concurrency=concurrency,
            )
    finally:
        for pool, size in before.items():
            await bench.scale(pool, size)
    return figures


async def measure_from_outside(options: argparse.Namespace) -> tuple[Figures, str]:
    """Measure from this machine or from a pod. Return the figures, and where they were taken."""
    async with connect_release() as bench, own_namespace(bench) as namespace:
        peer = await run_peer(bench, namespace, pool=options.pool)
        if await is_node(bench):
            figures = await measure_all(bench, options, namespace=namespace, peer=peer.address)
            return figures, f"from this machine, the floor's pod on {peer.node}"
        passed = ["--pool", options.pool, "--rounds", str(options.rounds)]
        passed += ["--other", options.other] if options.other else []
        passed += ["--concurrency", *(str(each) for each in options.concurrency)]
        figures, node = await run_inside(
            bench, namespace, programs=PROGRAMS, arguments=[*passed, "--inside", namespace, peer.address],
            seconds=INSIDE_SECONDS, token=options.token,
        )  # fmt: skip
        return figures, f"from a pod on {node}, the floor's pod on {peer.node}"


def print_figures(figures: Figures, *, pool: str, place: str) -> None:
    """Print a table for each concurrency."""
    for name, found in figures.items():
        print(f"\n{pool}, {name}, ms, {place} ({found['samples']['cold']} cold starts)")
        print(table(found["summary"]))
        print(f"ratio to the floor at p50: {found['ratio']:.2f}")
        if (ratio := found.get("ratio of the token to the key")) is not None:
            print(f"ratio of the token to the API key at p50: {ratio:.2f}")
        if (more := found.get("more in the other pool, ms")) is not None:
            print(f"the other pool takes {more:.2f} ms more at p50")


async def main() -> None:
    """Run the command."""
    options = parser(__doc__, pool="gvisor")
    options.add_argument(
        "--rounds", type=int, default=100, help="rounds at concurrency 1; other concurrencies take as many samples"
    )
    options.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 16])
    options.add_argument(
        "--token", type=Path, metavar="FILE", help="also measure executions by the token of a person in this file"
    )
    options.add_argument("--other", metavar="POOL", default="", help="also measure executions in this pool")
    options.add_argument("--inside", nargs=2, metavar=("NAMESPACE", "PEER"), help=argparse.SUPPRESS)
    arguments = options.parse_args()
    # a load pod has it in its environment
    arguments.token = arguments.token.read_text().strip() if arguments.token else os.environ.get(PERSON, "")
    if arguments.inside:
        namespace, peer = arguments.inside
        async with connect_inside() as bench:
            found = await measure_all(bench, arguments, namespace=namespace, peer=peer)
            await store_result(bench, namespace, found)
        return
    figures, place = await measure_from_outside(arguments)
    print_figures(figures, pool=arguments.pool, place=place)
    write_json(arguments.json, {"pool": arguments.pool, "place": place, **figures})


if __name__ == "__main__":
    run(main())
