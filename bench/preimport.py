"""What modules that a pool imports ahead cost: time and memory of each, and the start of the pod.

For each list of modules and each RuntimeClass it creates a pool with one warm pod, and reads the line `ready` of the
pod's log, which has the time and the memory of each module. Needs a release and kubectl.

    KUBECONFIG=... python bench/preimport.py --image localhost/mcp-exec-data:dev --json preimport.json
"""

import argparse
import asyncio
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import NAMESPACE, parser, run, table, write_json
from waits import within

from mcp_exec_api.constants import API_VERSION, LABEL_POOL, POOLS
from mcp_exec_common.kube.client import KubeClient, custom_resource_path, resource_path

POOL = "bench-preimport"
SECONDS = 180.0
LISTS = (
    "numpy",
    "numpy,pandas",
    "numpy,pandas,matplotlib.pyplot",
    "polars",
    "pyarrow",
    "scipy.stats",
    "openpyxl",
    "PIL.Image",
)


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What one list of modules took in one pod."""

    seconds: float
    megabytes: float

    @classmethod
    def from_log(cls, text: str) -> "Imported | None":
        """Read the line of a sandbox's log that says that it is ready."""
        for line in text.splitlines():
            if '"preimport"' in line:
                modules = json.loads(line)["preimport"]
                seconds = sum(module["ms"] for module in modules) / 1000
                return cls(seconds=seconds, megabytes=sum(module["memoryBytes"] for module in modules) / 1e6)
        return None


async def read_logs() -> str:
    """Return the logs of the pool's pods."""
    words = ("kubectl", "logs", "-n", NAMESPACE, "-l", f"{LABEL_POOL}={POOL}", "--tail=20")
    process = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    async with within(30, "kubectl logs"):
        return (await process.communicate())[0].decode()


async def measure(kube: KubeClient, *, image: str, runtime: str, modules: list[str]) -> Imported:
    """Create a pool, wait for its pod, read what its log says, and delete the pool."""
    path = custom_resource_path(POOLS, namespace=NAMESPACE, name=POOL)
    spec: dict[str, Any] = {"image": image, "preimport": modules, "warm": {"min": 1, "max": 1}}
    if runtime:
        spec["runtimeClassName"] = runtime
    metadata = {"name": POOL, "namespace": NAMESPACE}
    pool = {"apiVersion": API_VERSION, "kind": "SandboxPool", "metadata": metadata, "spec": spec}
    await kube.create(custom_resource_path(POOLS, namespace=NAMESPACE), pool)
    try:
        async with within(SECONDS, f"a pod of pool {POOL} that has imported {', '.join(modules)}"):
            while (found := Imported.from_log(await read_logs())) is None:  # noqa: ASYNC110 - another process
                await asyncio.sleep(1)
            return found
    finally:
        await kube.delete(path)
        async with within(SECONDS, f"the end of the pods of pool {POOL}"):
            pods = resource_path("pods", namespace=NAMESPACE)
            while (await kube.list(pods, selector=f"{LABEL_POOL}={POOL}"))[0]:  # noqa: ASYNC110
                await asyncio.sleep(1)


async def bench(options: argparse.Namespace) -> None:
    """Measure all lists in all runtimes."""
    rows: dict[str, dict[str, Any]] = {}
    async with KubeClient.connect(kubeconfig=Path(os.environ["KUBECONFIG"])) as kube:
        for names in options.modules:
            row: dict[str, Any] = {}
            for runtime in options.runtimes:
                found = await measure(kube, image=options.image, runtime=runtime, modules=names.split(","))
                label = runtime or "runc"
                row |= {f"{label} s": round(found.seconds, 2), f"{label} MB": round(found.megabytes)}
            rows[names] = row
            print(f"{names}: {row}", flush=True)
    print(table(rows))
    write_json(options.json, {"image": options.image, "preimport": rows})


def main() -> None:
    """Read the options and measure."""
    found = parser(__doc__)
    found.add_argument("--image", default="localhost/mcp-exec-data:dev", help="image of the sandboxes")
    found.add_argument("--modules", nargs="+", default=list(LISTS), metavar="A,B", help="lists of modules")
    found.add_argument(
        "--runtimes", nargs="+", default=["gvisor", ""], help="RuntimeClasses; empty: the node's default"
    )
    run(bench(found.parse_args()))


if __name__ == "__main__":
    main()
