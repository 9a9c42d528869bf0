"""Things that a release serves: warm pods, and namespaces."""

import argparse
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from capacity_probe import time_seconds
from capacity_stored import Measurement, probing, work_at_once
from figures import Row
from harness import inherit_environment
from processes import ChildProcess, ProcessMemory, child
from simulated import MOUNTED_KEY, NAMESPACE, POOL, SYSTEM, SimulatedRelease, pool_object
from tests.support.control_plane import ControlPlane
from tests.support.ports import free_port

from mcp_exec_common.kube.client import custom_resource_path, resource_path

FILL_SECONDS = 1800.0


async def measure_pods(plane: ControlPlane, options: argparse.Namespace) -> Measurement:
    """Fill a pool, a number after the other, and empty it at the end."""
    steps: dict[int, Row] = {}
    async with probing(plane, options, warm=0) as (made, probe):
        warm = partial(made.bench.wait_until_warm, POOL, seconds=FILL_SECONDS)
        for count in options.sizes:
            await made.bench.scale(POOL, count)
            filled = await warm(count)
            row = await probe.restart()
            row["known s"] = round(row["operator starts s"] + await warm(count), 1)
            steps[count] = row | await probe.measure()
            print(f"{count} pods, filled within {filled:.1f} s: {steps[count]}", flush=True)
        await made.bench.scale(POOL, 0)
        await warm(0)
        await made.bench.wait_until_settled(POOL, seconds=FILL_SECONDS)
        after = await probe.measure_return(max(options.sizes))
    return Measurement(steps=steps, after=after, more={})


async def measure_namespaces(plane: ControlPlane, options: argparse.Namespace) -> Measurement:
    """Serve namespaces that have a pool without warm pods, a number after the other."""
    steps: dict[int, Row] = {}
    names = [NAMESPACE, *(f"served-{number:04}" for number in range(1, max(options.sizes)))]
    async with probing(plane, options, warm=0) as (made, probe):
        for before, count in zip([1, *options.sizes], options.sizes, strict=False):
            await made.stop_operator()
            await made.stop_gateway()
            await work_at_once([partial(make_namespace, made, name) for name in names[before:count]])
            made.namespaces = tuple(names[:count])
            row, open_before = {}, await probe.count_watches()
            row["operator starts s"] = await time_seconds(made.start_operator)
            row["gateway starts s"] = await time_seconds(made.start_gateway)
            row["watches"] = (with_both := await probe.count_watches()) - open_before
            async with broker_running(made) as (broker, seconds):
                row["broker starts s"] = seconds
                row["broker's watches"] = await probe.count_watches() - with_both
                steps[count] = row | await probe.measure() | {"broker MB": ProcessMemory.read(broker.pid).resident}
            print(f"{count} namespaces: {steps[count]}", flush=True)
    return Measurement(steps=steps, after={}, more={})


async def make_namespace(made: SimulatedRelease, name: str) -> None:
    """Create a namespace with a pool."""
    pool = pool_object(warm=0)
    pool["metadata"]["namespace"] = name
    await made.bench.kube.create(resource_path("namespaces"), {"metadata": {"name": name}})
    await made.bench.kube.create(custom_resource_path("sandboxpools", namespace=name), pool)


@asynccontextmanager
async def broker_running(made: SimulatedRelease) -> AsyncIterator[tuple[ChildProcess, float]]:
    """Run a broker of the release, with the gateway's account, and yield it with the seconds that its start took."""
    port, control = free_port(), free_port()
    settings = {
        "NAMESPACES": ",".join(made.namespaces),
        "RELEASE_NAMESPACE": SYSTEM,
        "SANDBOX_KEY_FOLDER": str(made.folder / MOUNTED_KEY),
        "KUBECONFIG": str(made.folder / "gateway.kubeconfig"),
        "AUDIT_FILE": str(made.folder / "audit.sqlite"),
        "PORT": str(port),
        "CONTROL_PORT": str(control),
        "DRAIN_SECONDS": "0",
        "SHUTDOWN_SECONDS": "0",
    }
    environment = inherit_environment() | {f"MCP_EXEC_{name}": value for name, value in settings.items()}
    command = [sys.executable, "-m", "mcp_exec_broker"]
    async with child(command, environment=environment, log=made.folder / "broker.log") as running:
        seconds = await time_seconds(lambda: made.wait_until_ready(running, control))
        yield running, seconds
