"""What a control plane and a release take at one moment of a measurement of capacity, as a row of its table."""

import asyncio
import re
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from etcd import Etcd
from figures import Row, Rows
from processes import COLLECT, METRICS, PROFILE, ProcessMemory, read_heap
from simulated import SimulatedRelease
from waits import within

from mcp_exec_common.kube.errors import ApiError

_PROCESSES: Final = {
    "kube-apiserver": "API server", "etcd": "etcd", "operator": "operator", "gateway": "gateway",
    "kube-scheduler": "scheduler", "kube-controller-manager": "controller manager",
}  # fmt: skip
_WATCHES: Final = re.compile(r'^apiserver_longrunning_requests\{[^}]*verb="WATCH"[^}]*\} (\S+)$', re.MULTILINE)
KUBECTL_SECONDS: Final = 300.0
WATCH_SECONDS: Final = 120.0
HEAP_SECONDS: Final = 300.0


def count_watches(metrics: str) -> int:
    """Return the open watches in an API server's metrics."""
    return round(sum(float(number) for number in _WATCHES.findall(metrics)))


@dataclass(frozen=True, kw_only=True)
class CapacityProbe:
    """Reads memory and sizes of a release on simulated nodes and of its control plane."""

    made: SimulatedRelease
    etcd: Etcd
    settle: float
    """Seconds of rest before memory is read."""

    async def measure(self) -> Row:
        """Return the resident memory of each part, live heaps and the database, in MB (10^6 bytes)."""
        await asyncio.sleep(self.settle)
        found: dict[str, float] = {}
        for name, pid in self.made.pids.items():
            if (part := _PROCESSES.get(name)) is not None:
                found[f"{part} MB"] = (memory := ProcessMemory.read(pid)).resident
                if part == "etcd":
                    found["etcd's own MB"] = memory.anonymous
        size = await self.etcd.measure()
        live = {"API server live MB": await self._read_live_heap(), "etcd live MB": await self.etcd.read_live_heap()}
        return {**found, **live, "database MB": size.file, "used MB": size.used}

    async def _read_live_heap(self) -> float:
        """Return the MB of the API server's live objects. A busy one may need several requests."""
        kube, problem = self.made.bench.kube, ""
        async with within(HEAP_SECONDS, "a garbage collection of the API server", state=lambda: problem):
            while True:
                try:
                    await kube.read_text(PROFILE, **COLLECT)
                    return read_heap(await kube.read_text(METRICS))
                except (ApiError, OSError) as error:
                    problem = str(error)
                    await asyncio.sleep(1)

    async def measure_return(self, count: int) -> Rows:
        """Return rows of what is left after so many objects were deleted, after a compaction and a defragmentation."""
        rows = {f"{count:,} deleted": await self.measure()}
        await self.etcd.compact()
        rows["and etcd compacted"] = await self.measure()
        await self.etcd.defragment()
        rows["and defragmented"] = await self.measure()
        return rows

    async def count_watches(self) -> int:
        """Return the watches that the API server has open, once their number stays the same."""
        found: list[int] = []
        async with within(WATCH_SECONDS, "a number of watches that stays", state=lambda: found[-3:]):
            while len(set(found[-3:])) != 1 or len(found) < 3:
                found.append(count_watches(await self.made.bench.kube.read_text(METRICS)))
                await asyncio.sleep(1)
        return found[-1]

    async def restart(self) -> Row:
        """Start operator and gateway again. Return the seconds until each is ready."""
        if self.made.operator is not None:
            await self.made.stop_operator()
        await self.made.stop_gateway()
        return {
            "operator starts s": await time_seconds(self.made.start_operator),
            "gateway starts s": await time_seconds(self.made.start_gateway),
        }

    async def time_list(self, *, limit: int = 100, rounds: int = 5) -> float:
        """Return the median milliseconds of the gateway's answer to a list of one page of executions."""
        bench, samples = self.made.bench, []
        for _ in range(rounds):
            started = time.perf_counter()
            request = bench.session.get(
                f"{bench.gateway}/v1/executions", params={"limit": str(limit)}, headers=bench.headers
            )
            async with within(KUBECTL_SECONDS, "the gateway's list of executions"), request as response:
                if response.status != 200:
                    raise RuntimeError(f"the gateway answered {response.status}: {await response.text()}")
                await response.read()
            samples.append((time.perf_counter() - started) * 1000)
        return round(statistics.median(samples), 1)

    async def time_kubectl(self, kubeconfig: str, resource: str) -> float:
        """Return the seconds of `kubectl get` of all objects of a kind in the release's namespace."""
        words = ("kubectl", "--kubeconfig", kubeconfig, "get", resource, "--namespace", self.made.bench.namespace)
        started = time.perf_counter()
        process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.DEVNULL)
        async with within(KUBECTL_SECONDS, f"kubectl get {resource}"):
            status = await process.wait()
        if status:
            raise RuntimeError(f"kubectl get {resource} ended with {status}")
        return round(time.perf_counter() - started, 2)


async def time_seconds(work: Callable[[], Awaitable[object]]) -> float:
    """Return the seconds that some work takes."""
    started = time.perf_counter()
    await work()
    return round(time.perf_counter() - started, 2)
