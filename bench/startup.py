"""Cost of a pod's start and end: processor seconds and time, for a sandbox and for a pod that sleeps.

Pods of the same image and the same manifest start at once, in a namespace of their own with a NetworkPolicy that denies
all. The processor seconds are those of the whole machine, without its idle rate, which is measured before each batch,
and without this program. So they hold the work of kubelet, container runtime and API server for a pod, too. Run it on
the node itself, with nothing else on the machine; or name the control groups of pods and daemons (--cgroups), and only
their time counts. --breakdown adds pods that do a part of what a sandbox does.

    KUBECONFIG=... python bench/startup.py --images localhost/mcp-exec-sandbox:dev --json startup.json
"""

import argparse
import asyncio
import hashlib
import os
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
from harness import client, percentile, run, table, write_json
from waits import within

from mcp_exec_api.constants import SUPERVISOR_PORT
from mcp_exec_api.sandbox_pool import SandboxPoolSpec
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_operator.core.pods.manifest import NO_ADDRESSES, IsolationAddresses, PodIdentity, PoolIdentity, build_pod

NAMESPACE = "bench-startup"
PODS = resource_path("pods", namespace=NAMESPACE)
SECONDS = 180.0
"""Time for all pods of a batch to start, or to end."""
SETTLE_SECONDS = 2.0
"""Time after a batch that still counts: the interpreter of a pod that is running may still start."""
POLL_SECONDS = 0.1
FIRST_UID = 100_000
_TICKS = os.sysconf("SC_CLK_TCK")
_PAUSE = "import signal; signal.pause()"
_IMPORT_SUPERVISOR = "import mcp_exec_sandbox.supervisor.lifecycle"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A kind of pod: what its container runs, and from when on it counts as ready."""

    name: str
    command: tuple[str, ...] = ()
    """Replaces the image's entry point."""
    serves: bool = False
    """Whether it is ready once its supervisor is idle. Otherwise once its container runs."""
    is_checked: bool = False
    """Whether the sandbox checks its isolation."""
    image: str = ""
    """Another image than the first one that is given."""


SLEEPS = Shape(name="a pod that sleeps", command=("sleep", "infinity"))
SANDBOX = Shape(name="a sandbox", serves=True, is_checked=True)
PARTS = (
    Shape(name="one interpreter", command=("python3", "-c", _PAUSE)),
    Shape(name="+ imports of the supervisor", command=("python3", "-c", f"{_IMPORT_SUPERVISOR}; {_PAUSE}")),
    Shape(name="a sandbox without the check of its isolation", serves=True),
)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one batch of pods took. Seconds of the processor are per pod."""

    start: float
    end: float
    ready: tuple[float, ...]
    """Seconds from the creation of each pod until it was ready."""

    @property
    def total(self) -> float:
        """Processor seconds of start and end."""
        return self.start + self.end


def parse_busy_seconds(stat: str) -> float:
    """Return the seconds that all processors have worked, from the text of /proc/stat.

    Time that a hypervisor took away does not count.
    """
    user, nice, system, _, _, irq, softirq, *_ = map(int, stat.split("\n", 1)[0].split()[1:])
    return (user + nice + system + irq + softirq) / _TICKS


@dataclass(kw_only=True)
class Meter:
    """Processor seconds of the machine since `begin`, less those of this process and of the idle machine."""

    cgroups: tuple[Path, ...] = ()
    """Folders of the control groups that count. Empty: the whole machine."""
    idle_rate: float = 0.0
    """Processor seconds a second that the machine uses without the pods."""
    _busy: float = 0.0
    _since: float = 0.0

    async def measure_idle(self, seconds: float) -> None:
        """Measure the idle rate."""
        self.idle_rate = 0.0
        self.begin()
        await asyncio.sleep(seconds)
        self.idle_rate = max(0.0, self.read() / seconds)

    def begin(self) -> None:
        """Measure from now on."""
        self._busy, self._since = self._read_busy(), time.perf_counter()

    def read(self) -> float:
        """Return the seconds since `begin`."""
        return self._read_busy() - self._busy - self.idle_rate * (time.perf_counter() - self._since)

    def _read_busy(self) -> float:
        if self.cgroups:
            return sum(read_group_seconds(folder) for folder in self.cgroups)
        return parse_busy_seconds(Path("/proc/stat").read_text()) - time.process_time()


def read_group_seconds(folder: Path) -> float:
    """Return the processor seconds of a control group and of all below it, also of those that are gone."""
    if (usage := folder / "cpuacct.usage").exists():
        return int(usage.read_text()) / 1e9
    return int((folder / "cpu.stat").read_text().split()[1]) / 1e6


@dataclass(kw_only=True)
class Batches:
    """Starts and ends batches of pods and measures them."""

    kube: KubeClient
    session: aiohttp.ClientSession
    image: str
    runtime: str
    """RuntimeClass of the pods. Empty for the node's default."""
    isolation: IsolationAddresses
    size: int
    idle_seconds: float
    meter: Meter = field(default_factory=Meter)
    _number: int = 0

    async def measure(self, shape: Shape) -> Cost:
        """Start a batch, wait until it is ready, end it."""
        await self.meter.measure_idle(self.idle_seconds)
        pods = [self._build(shape) for _ in range(self.size)]
        names = [pod["metadata"]["name"] for pod in pods]
        self.meter.begin()
        async with PodWatch(kube=self.kube).running() as watch:
            ready = await asyncio.gather(*(self._start(pod, shape, watch) for pod in pods))
            await asyncio.sleep(SETTLE_SECONDS)
        start = self.meter.read()
        self.meter.begin()
        await end_pods(self.kube, names)
        await asyncio.sleep(SETTLE_SECONDS)
        return Cost(start=start / self.size, end=self.meter.read() / self.size, ready=tuple(ready))

    async def _start(self, pod: Object, shape: Shape, watch: "PodWatch") -> float:
        started = time.perf_counter()
        await self.kube.create(PODS, pod)
        name = pod["metadata"]["name"]
        async with within(SECONDS, f"{name} to run"):
            address = await watch.wait_until_running(name)
        async with within(SECONDS, f"the supervisor of {name} to be idle"):
            while shape.serves and not await self._is_idle(address):  # noqa: ASYNC110 - another process
                await asyncio.sleep(POLL_SECONDS)
        return time.perf_counter() - started

    async def _is_idle(self, address: str) -> bool:
        with suppress(aiohttp.ClientError, TimeoutError, ValueError):
            url, timeout = f"http://{address}:{SUPERVISOR_PORT}/healthz", aiohttp.ClientTimeout(total=1)
            async with self.session.get(url, timeout=timeout) as response:
                return bool((await response.json()).get("state") == "idle")
        return False

    def _build(self, shape: Shape) -> Object:
        """Build a pod as the operator builds those of a pool, except for its owners and labels."""
        self._number += 1
        name = f"bench-{self._number}"
        body = build_pod(
            spec=SandboxPoolSpec(image=shape.image or self.image, runtime_class_name=self.runtime or None),
            pool=PoolIdentity(namespace=NAMESPACE, name="bench", uid=""),
            pod=PodIdentity(
                name=name, token_sha256=hashlib.sha256(name.encode()).hexdigest(), uid=FIRST_UID + self._number
            ),
            template_hash="",
            isolation=self.isolation if shape.is_checked else NO_ADDRESSES,
        ).body
        if shape.command:
            body["spec"]["containers"][0]["command"] = list(shape.command)
        return {**body, "metadata": {"name": name, "namespace": NAMESPACE}}


@dataclass(kw_only=True)
class PodWatch:
    """Waits for pods of the namespace."""

    kube: KubeClient
    _addresses: "dict[str, asyncio.Future[str]]" = field(default_factory=dict)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["PodWatch"]:
        """Watch until the context ends."""
        reflector = Reflector(kube=self.kube, path=PODS, on_change=self._observe)
        async with reflector.run_in_background():
            async with within(30, f"the first list of the pods in {NAMESPACE}"):
                await reflector.synced.wait()
            yield self

    async def wait_until_running(self, name: str) -> str:
        """Return the address of a pod once its container runs."""
        return await self._find(name)

    def _observe(self, pod: Object, deleted: bool) -> None:
        status, found = pod.get("status") or {}, self._find(pod["metadata"]["name"])
        if found.done():
            return
        if status.get("phase") == "Running" and status.get("podIP"):
            found.set_result(str(status["podIP"]))
        elif status.get("phase") in ("Failed", "Succeeded"):
            found.set_exception(RuntimeError(f"a pod ended: {status}"))

    def _find(self, name: str) -> "asyncio.Future[str]":
        return self._addresses.setdefault(name, asyncio.get_running_loop().create_future())


async def end_pods(kube: KubeClient, names: Sequence[str]) -> None:
    """Delete pods as the operator does, and wait until they are gone."""
    await asyncio.gather(*(kube.delete(f"{PODS}/{name}", grace_seconds=1) for name in names))
    async with within(SECONDS, f"the end of all pods in {NAMESPACE}"):
        while (await kube.list(PODS))[0]:  # noqa: ASYNC110 - a watch would cost as much
            await asyncio.sleep(POLL_SECONDS)


@asynccontextmanager
async def make_namespace(kube: KubeClient) -> AsyncIterator[None]:
    """Create the namespace with a policy that denies everything, and delete it at the end."""
    path = resource_path("namespaces")
    with suppress(ApiError):
        await kube.create(path, {"metadata": {"name": NAMESPACE}})
    policy = {
        "metadata": {"name": "deny"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [], "egress": []},
    }
    try:
        with suppress(ApiError):
            await kube.create(
                resource_path("networkpolicies", namespace=NAMESPACE, group="networking.k8s.io/v1"), policy
            )
        yield
    finally:
        await kube.delete(f"{path}/{NAMESPACE}")


def summarize(costs: Sequence[Cost], floor: Sequence[Cost]) -> dict[str, Any]:
    """Return a row of the table: medians over the rounds, and the difference to the floor."""

    def median(values: Sequence[float]) -> float:
        return round(statistics.median(values), 2)

    ready = [seconds for cost in costs for seconds in cost.ready]
    return {
        "start CPU s": median([cost.start for cost in costs]),
        "end CPU s": median([cost.end for cost in costs]),
        "more than sleeping": round(
            statistics.median(cost.total for cost in costs) - statistics.median(cost.total for cost in floor), 2
        ),
        "ready p50 s": round(percentile(ready, 0.5), 2),
        "ready max s": round(max(ready), 2),
    }


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument(
        "--images", nargs="+", default=["localhost/mcp-exec-sandbox:dev"], help="images of sandboxes to compare"
    )
    found.add_argument("--runtimes", nargs="+", default=["gvisor", "runc"], help="RuntimeClasses; runc is the default")
    found.add_argument("--pods", type=int, default=10, help="pods that start at once")
    found.add_argument("--rounds", type=int, default=3, help="batches of each kind of pod, in turn")
    found.add_argument("--idle-seconds", type=float, default=4, help="time to measure the idle machine, each time")
    found.add_argument("--cgroups", nargs="+", type=Path, default=(), help="folders of the control groups that count")
    found.add_argument("--breakdown", action="store_true", help="also measure pods that do a part of a sandbox's work")
    found.add_argument("--json", type=Path, metavar="FILE", help="file for all figures and samples")
    return found.parse_args()


async def main() -> None:
    """Run the command."""
    arguments = parse_arguments()
    first, *others = arguments.images
    shapes = [SLEEPS, *(PARTS if arguments.breakdown else ()), SANDBOX]
    shapes += [replace(SANDBOX, name=f"{SANDBOX.name} of {image}", image=image) for image in others]
    rows: dict[str, dict[str, Any]] = {}
    samples: dict[str, list[dict[str, Any]]] = {}
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(KubeClient.connect(kubeconfig=Path(os.environ["KUBECONFIG"])))
        session = await stack.enter_async_context(client())
        await stack.enter_async_context(make_namespace(kube))
        service = (await kube.get(resource_path("services", namespace="default", name="kubernetes")))["spec"]
        isolation = IsolationAddresses(forbidden=(f"{service['clusterIP']}:{service['ports'][0]['port']}",))
        for runtime in arguments.runtimes:
            batches = Batches(
                kube=kube,
                session=session,
                image=first,
                runtime="" if runtime == "runc" else runtime,
                isolation=isolation,
                size=arguments.pods,
                idle_seconds=arguments.idle_seconds,
                meter=Meter(cgroups=tuple(arguments.cgroups)),
            )
            costs: dict[str, list[Cost]] = {shape.name: [] for shape in shapes}
            for _ in range(arguments.rounds):
                for shape in shapes:
                    costs[shape.name].append(await batches.measure(shape))
            rows |= {f"{runtime}, {name}": summarize(found, costs[SLEEPS.name]) for name, found in costs.items()}
            samples |= {f"{runtime}, {name}": [vars(cost) for cost in found] for name, found in costs.items()}
    print(table(rows))
    write_json(arguments.json, {"pods": arguments.pods, "rows": rows, "samples": samples})


if __name__ == "__main__":
    run(main())
