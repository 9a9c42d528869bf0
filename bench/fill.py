"""Time to fill a pool from zero to N warm pods, compared with its lower bound.

The lower bound (floor) is a bare client that creates N pods, a fixed number at a time, and watches until all are
ready: the speed of API server, scheduler and nodes without an operator.

    KUBECONFIG=... python bench/fill.py --sizes 300 1000 5000 --json fill.json
"""

import argparse
import asyncio
import time
from datetime import datetime
from typing import Any

from harness import BenchCluster, parser, percentile, run, table, write_json
from objects import LABEL, TOLERATION
from processes import ProcessMeter
from simulated import NAMESPACE, POOL, SimulatedRelease, release
from waits import within

from mcp_exec_api.constants import LABEL_POOL
from mcp_exec_common.kube.client import resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import Reflector

BARE = "bench-floor"
AT_ONCE = 32
PODS = resource_path("pods", namespace=NAMESPACE)


def bare_pod(number: int) -> Object:
    """Build a pod of the floor, as small as a sandbox pod can be."""
    limits, requests = {"cpu": "1", "memory": "512Mi"}, {"cpu": "50m", "memory": "64Mi"}
    resources = {"limits": limits, "requests": requests}
    spec: Object = {
        "containers": [{"name": "sandbox", "image": "localhost/simulated:1", "resources": resources}],
        "nodeSelector": {LABEL: "true"},
        "tolerations": [TOLERATION],
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "restartPolicy": "Never",
    }
    return {"metadata": {"name": f"{BARE}-{number}", "labels": {LABEL: BARE}}, "spec": spec}


def is_ready(pod: Object) -> bool:
    """Return whether the pod's node reports it ready."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def floor(bench: BenchCluster, size: int, *, seconds: float) -> float:
    """Return the seconds until `number` bare pods are ready, and delete them."""
    ready: set[str] = set()
    done = asyncio.Event()

    def on_pod(pod: Object, deleted: bool) -> None:
        if not deleted and is_ready(pod):
            ready.add(pod["metadata"]["name"])
            if len(ready) == size:
                done.set()

    watch = Reflector(kube=bench.kube, path=PODS, selector=f"{LABEL}={BARE}", on_change=on_pod)
    async with watch.run_in_background(), within(seconds, f"{size} bare pods to be ready", state=lambda: len(ready)):
        await watch.synced.wait()
        start, numbers = time.perf_counter(), iter(range(size))

        async def create() -> None:
            for number in numbers:
                await bench.kube.create(PODS, bare_pod(number))

        await asyncio.gather(*(create() for _ in range(AT_ONCE)))
        await done.wait()
        elapsed = time.perf_counter() - start
    await end_pods(bench, f"{LABEL}={BARE}", seconds=seconds)
    return elapsed


async def end_pods(bench: BenchCluster, selector: str, *, seconds: float) -> None:
    """Delete pods and wait until they are gone."""
    pods: list[Object] = []
    async with within(seconds, f"the end of the pods with {selector}", state=lambda: len(pods)):
        while pods := (await bench.kube.list(PODS, selector=selector))[0]:
            names = iter([pod["metadata"]["name"] for pod in pods])

            async def delete(names: Any = names) -> None:
                for name in names:
                    await bench.kube.delete(f"{PODS}/{name}", grace_seconds=0)

            await asyncio.gather(*(delete() for _ in range(AT_ONCE)))


def seconds_between(pods: list[Object], first: str, then: str) -> list[float]:
    """Return the whole seconds between two moments in the life of each pod."""
    return [(moment(pod, then) - moment(pod, first)).total_seconds() for pod in pods]


def moment(pod: Object, kind: str) -> datetime:
    """Return when the pod was created, or when one of its conditions became true."""
    text = pod["metadata"]["creationTimestamp"]
    if kind != "Created":
        text = next(each["lastTransitionTime"] for each in pod["status"]["conditions"] if each["type"] == kind)
    return datetime.fromisoformat(text)


async def fill(made: SimulatedRelease, size: int, *, seconds: float) -> dict[str, Any]:
    """Run one fill and its floor, and empty the pool."""
    bench = made.bench
    await bench.wait_until_warm(POOL, 0, seconds=seconds)
    least = await floor(bench, size, seconds=seconds)
    meter = ProcessMeter(pids=made.pids)
    await bench.scale(POOL, size)
    elapsed = await bench.wait_until_warm(POOL, size, seconds=seconds)
    processes = meter.rows()
    pods, _ = await bench.kube.list(PODS, selector=f"{LABEL_POOL}={POOL}")
    scheduled, ready = seconds_between(pods, "Created", "PodScheduled"), seconds_between(pods, "PodScheduled", "Ready")
    await bench.scale(POOL, 0)
    await bench.wait_until_warm(POOL, 0, seconds=seconds)
    await end_pods(bench, f"{LABEL_POOL}={POOL}", seconds=seconds)
    return {
        "row": {
            "s": round(elapsed, 2),
            "pods/s": round(size / elapsed, 1),
            "floor s": round(least, 2),
            "floor pods/s": round(size / least, 1),
            "ratio": round(elapsed / least, 2),
            "to scheduled p50 s": percentile(scheduled, 0.5),
            "p99": percentile(scheduled, 0.99),
            "to ready p50 s": percentile(ready, 0.5),
            "p99 ": percentile(ready, 0.99),
        },
        "processes": processes,
    }


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run all sizes, the smallest first."""
    found: dict[str, Any] = {}
    async with release(warm=0, nodes=options.node_count) as made:
        for size in sorted(options.sizes):
            found[f"0 to {size}"] = one = await fill(made, size, seconds=options.seconds)
            print(f"\n0 to {size} warm pods")
            print(table({"": one["row"]}))
            print(table(one["processes"]), flush=True)
    return found


def main() -> None:
    """Run the command."""
    options = parser(__doc__)
    options.add_argument("--sizes", type=int, nargs="+", default=[300, 1000, 5000])
    options.add_argument("--node-count", type=int, default=50, help="simulated nodes (default: 50)")
    options.add_argument("--seconds", type=float, default=900, help="timeout of a step (default: 900)")
    arguments = options.parse_args()
    write_json(arguments.json, run(measure(arguments)))


if __name__ == "__main__":
    main()
