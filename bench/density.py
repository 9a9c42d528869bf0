"""Cost of an idle warm pod (memory, CPU time, wake-ups), compared with a pod that only pauses.

It reads the pods' processes in /proc, so it runs on the node itself. Memory is the proportional share (PSS) of all
processes of the pod, the runtime's included.

    KUBECONFIG=... python bench/density.py --pools runc gvisor --seconds 20 --json density.json
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import NAMESPACE, BenchCluster, connect_release, parser, percentile, run, table, write_json
from waits import within

from mcp_exec_api.constants import LABEL_POOL
from mcp_exec_common.kube.client import resource_path
from mcp_exec_common.kube.objects import Object

PAUSE = ["python3", "-S", "-c", "import signal; signal.pause()"]
START_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class PodUse:
    """Resources that a pod's processes have used so far, and memory that they hold."""

    wakeups: int
    cpu_seconds: float
    memory_mb: float


def read_use(uid: str) -> PodUse:
    """Return the use of all processes in the cgroup of the pod with this uid."""
    wakeups = nanoseconds = kilobytes = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"pod{uid}" not in (process / "cgroup").read_text().replace("_", "-"):
                continue
            for task in (process / "task").iterdir():
                ran, _, times = (task / "schedstat").read_text().split()
                nanoseconds, wakeups = nanoseconds + int(ran), wakeups + int(times)
            lines = (process / "smaps_rollup").read_text().splitlines()
            kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except OSError:
            continue  # the process has ended
    return PodUse(wakeups=wakeups, cpu_seconds=nanoseconds / 1e9, memory_mb=kilobytes / 1024)


async def measure_at_rest(pods: list[Object], seconds: float) -> dict[str, Any]:
    """Return medians over the pods for one interval without work."""
    uids = [pod["metadata"]["uid"] for pod in pods]
    before = {uid: read_use(uid) for uid in uids}
    await asyncio.sleep(seconds)
    after = {uid: read_use(uid) for uid in uids}
    if not all(use.memory_mb for use in after.values()):
        raise RuntimeError("no processes of these pods are on this machine: run it on their node")

    def median(values: list[float]) -> float:
        return round(percentile(values, 0.5), 2)

    return {
        "pods": len(pods),
        "memory MB": median([use.memory_mb for use in after.values()]),
        "CPU %": median([(after[uid].cpu_seconds - before[uid].cpu_seconds) / seconds * 100 for uid in uids]),
        "wake-ups/s": median([(after[uid].wakeups - before[uid].wakeups) / seconds for uid in uids]),
    }


@asynccontextmanager
async def run_pausing_pod(bench: BenchCluster, like: Object) -> AsyncIterator[Object]:
    """Run a pod of the same image and runtime whose one process only waits for a signal."""
    spec, container = like["spec"], like["spec"]["containers"][0]
    runtime = {"runtimeClassName": spec["runtimeClassName"]} if spec.get("runtimeClassName") else {}
    path = resource_path("pods", namespace=NAMESPACE)
    kept = {name: container[name] for name in ("image", "imagePullPolicy", "resources", "securityContext")}
    made = await bench.kube.create(
        path,
        {
            "metadata": {"generateName": "bench-pause-"},
            "spec": {
                **runtime,
                "securityContext": spec["securityContext"],
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "pause", "command": PAUSE, **kept}],
            },
        },
    )
    own = f"{path}/{made['metadata']['name']}"
    try:
        async with within(START_SECONDS, "a pod that pauses to run"):
            while (found := await bench.kube.get(own))["status"].get("phase") != "Running":  # noqa: ASYNC110
                await asyncio.sleep(0.5)
        yield found
    finally:
        await bench.kube.delete(own)


async def main() -> None:
    """Run the command."""
    options = parser(__doc__)
    options.add_argument("--pools", nargs="+", default=["default"], help="pools whose warm pods to measure")
    options.add_argument("--seconds", type=float, default=20, help="duration of each measurement")
    arguments = options.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    async with connect_release() as bench:
        for pool in arguments.pools:
            await bench.wait_until_settled(pool)
            found, _ = await bench.kube.list(
                resource_path("pods", namespace=NAMESPACE), selector=f"{LABEL_POOL}={pool}"
            )
            warm = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
            if not warm:
                raise SystemExit(f"pool {pool} has no warm pods to measure")
            async with run_pausing_pod(bench, warm[0]) as pause:
                rows[f"{pool}, a pod that pauses"] = await measure_at_rest([pause], arguments.seconds)
            rows[f"{pool}, a warm sandbox"] = await measure_at_rest(warm, arguments.seconds)
    print(table(rows))
    write_json(arguments.json, {"rows": rows})


if __name__ == "__main__":
    run(main())
