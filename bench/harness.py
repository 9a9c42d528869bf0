"""Shared parts of the benchmarks: percentiles, tables, JSON files, and the cluster that they measure."""

import argparse
import asyncio
import base64
import json
import math
import os
import platform
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from waits import WaitTimedOut, within

from mcp_exec_api.constants import LABEL_OWNER, LABEL_POOL
from mcp_exec_api.meta import micro_time, now
from mcp_exec_common.kube.client import KubeClient, custom_resource_path, resource_path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))  # for what benchmarks and tests share: tests.support
SYSTEM, NAMESPACE, RELEASE = "mcp-exec-system", "agents", "mcp-exec"
Result = TypeVar("Result")
STAGES = ("queued", "bind", "dispatch", "run", "collect", "total")
POOL_PODS = r'^mcp_exec_pool_pods{{namespace="{namespace}",pool="{pool}",state="{state}"}} (\S+)$'


def inherit_environment() -> dict[str, str]:
    """Return the own environment for a process of the product, which refuses settings that it does not know."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MCP_EXEC_")}


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the smallest sample that at least `share` (0 to 1) of all samples don't exceed (nearest rank)."""
    ordered = sorted(samples)
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1]


def summary(samples: Sequence[float]) -> dict[str, float]:
    """Summarize samples in milliseconds: number, median and tail."""
    found = {f"p{round(share * 100)}": round(percentile(samples, share), 2) for share in (0.5, 0.9, 0.95, 0.99)}
    return {"n": len(samples), **found, "max": round(max(samples), 2)}


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Format rows of equal columns as aligned text."""
    columns = list(next(iter(rows.values())))
    lines = [["", *columns], *([name, *(str(row.get(column, "")) for column in columns)] for name, row in rows.items())]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns) + 1)]
    return "\n".join(
        "  ".join(cell.ljust(width) if not index else cell.rjust(width) for index, (cell, width) in
                  enumerate(zip(line, widths, strict=True)))
        for line in lines
    )  # fmt: skip


def parser(description: str | None, *, pool: str = "") -> argparse.ArgumentParser:
    """Build a parser with the options of every benchmark, and with --pool if the benchmark has a default of it."""
    found = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--json", type=Path, metavar="FILE", help="file for all figures and samples")
    if pool:
        found.add_argument("--pool", default=pool, help=f"the SandboxPool to use (default: {pool})")
    return found


def write_json(path: Path | None, figures: dict[str, Any]) -> None:
    """Write the figures and the machine that they were measured on."""
    if path is not None:
        machine = {"cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
        path.write_text(json.dumps({"at": micro_time(now()), "machine": machine, **figures}, indent=1) + "\n")


@dataclass(frozen=True, kw_only=True)
class BenchCluster:
    """A release under test: its API server and its gateway."""

    kube: KubeClient
    session: aiohttp.ClientSession
    gateway: str
    headers: dict[str, str]
    namespace: str = NAMESPACE
    operator: str = ""
    """URL of the operator's metrics, if they can be reached."""

    async def execute(self, code: str, *, pool: str, wait: int = 120, **spec: Any) -> dict[str, Any]:
        """Run code through the gateway and return its answer."""
        body = {"code": code, "poolRef": {"name": pool}, **spec}
        request = self.session.post(
            f"{self.gateway}/v1/executions", params={"wait": str(wait)}, json=body, headers=self.headers
        )
        async with within(wait + 30, f"the gateway's answer to an execution in pool {pool}"), request as response:
            answer: dict[str, Any] = await response.json()
            if response.status != 200:
                raise RuntimeError(f"the gateway answered {response.status}: {answer}")
            return answer

    async def pool(self, name: str) -> dict[str, Any]:
        """Read a SandboxPool."""
        return await self.kube.get(custom_resource_path("sandboxpools", namespace=self.namespace, name=name))

    async def scale(self, name: str, warm: int) -> None:
        """Set the number of warm pods of a pool."""
        await self.change(name, {"warm": {"min": warm}})

    async def change(self, name: str, spec: dict[str, Any]) -> None:
        """Change fields of a pool's spec."""
        path = custom_resource_path("sandboxpools", namespace=self.namespace, name=name)
        await self.kube.patch(path, {"spec": spec})

    async def delete_sessions(self, prefix: str) -> None:
        """Delete the sessions whose names begin so, and with them their pods."""
        path = custom_resource_path("sandboxsessions", namespace=self.namespace)
        for each in (await self.kube.list(path))[0]:
            if (name := each["metadata"]["name"]).startswith(prefix):
                await self.kube.delete(custom_resource_path("sandboxsessions", namespace=self.namespace, name=name))

    async def wait_until_settled(self, name: str, *, seconds: float = 180) -> None:
        """Wait until the pool has all its warm pods and no starting or busy ones, apart from those kept for owners."""
        path, selector = resource_path("pods", namespace=self.namespace), f"{LABEL_POOL}={name}"
        seen = ["nothing yet"]
        async with within(seconds, f"pool {name} to have its warm pods and no others", state=lambda: seen[0]):
            while True:
                # The operator writes a pool's status at most once a second, so an older status may be outdated.
                await asyncio.sleep(1.2)
                found = await self.pool(name)
                status, wanted = found.get("status", {}), found["spec"]["warm"]["min"]
                pods, _ = await self.kube.list(path, selector=selector)
                pods = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
                kept = sum(LABEL_OWNER in pod["metadata"]["labels"] for pod in pods)
                others, warm, busy = len(pods) - kept, status.get("warm"), status.get("busy", 0)
                seen[0] = f"{others} pods, {warm} warm and {busy} busy ones by its status, of {wanted} wanted"
                if warm == wanted == others and busy <= kept:  # the pod of a session is always busy
                    return

    async def warm(self, name: str) -> int:
        """Read the number of warm pods from the operator's metrics, or else from the pool's status."""
        if not self.operator:
            return int((await self.pool(name)).get("status", {}).get("warm", 0))
        async with self.session.get(f"{self.operator}/metrics") as response:
            found = re.search(
                POOL_PODS.format(namespace=self.namespace, pool=name, state="warm"), await response.text(), re.MULTILINE
            )
        return int(float(found[1])) if found else 0

    async def wait_until_warm(self, name: str, number: int, *, seconds: float) -> float:
        """Wait until exactly `number` pods are warm, and return the seconds that it took."""
        start, seen = time.perf_counter(), [-1]
        async with within(seconds, f"{number} warm pods of pool {name}", state=lambda: seen[0]):
            while True:
                seen[0] = await self.warm(name)
                if seen[0] == number:
                    return time.perf_counter() - start
                await asyncio.sleep(0.1)

    async def time_execution(
        self, pool: str, *, since: float | None = None, code: str = "print(1)", **spec: Any
    ) -> "TimedExecution":
        """Run code that prints 1 and measure it from `since`, a value of the performance counter, or from now."""
        start = time.perf_counter() if since is None else since
        problem, answer = "", {}
        try:
            answer = await self.execute(code, pool=pool, **spec)
        except (RuntimeError, ValueError, aiohttp.ClientError, TimeoutError) as error:
            problem = f"{type(error).__name__} {error}"
        elapsed = (time.perf_counter() - start) * 1000
        if answer and (answer.get("phase") != "Succeeded" or (answer.get("output") or {}).get("stdout") != "1\n"):
            problem = f"not what was printed: {answer}"
        return TimedExecution(milliseconds=elapsed, answer=answer, problem=problem)


@dataclass(frozen=True, kw_only=True)
class TimedExecution:
    """One execution as its client measured it."""

    milliseconds: float
    answer: dict[str, Any]
    problem: str
    """Reason of a failure, or an empty text."""


def stage_rows(runs: Sequence[TimedExecution]) -> dict[str, dict[str, float]]:
    """Summarize the latency that clients measured, and the operator's stages."""
    stages = {stage: [run.answer["durations"].get(stage) or 0.0 for run in runs if not run.problem] for stage in STAGES}
    rows = {"client, total": summary([run.milliseconds for run in runs])}
    return rows | {f"  {stage}": summary(samples) for stage, samples in stages.items() if samples}


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a benchmark. SIGTERM ends it as SIGINT does, after it has removed its objects.

    A wait that reached its limit ends the program with one line.
    """

    async def guarded() -> Result:
        task = asyncio.ensure_future(work)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await task

    try:
        return asyncio.run(guarded())
    except WaitTimedOut as error:
        raise SystemExit(f"{Path(sys.argv[0]).name}: {error}") from error


def client() -> aiohttp.ClientSession:
    """Open a session without a limit of connections, so that requests don't wait for each other."""
    timeout = aiohttp.ClientTimeout(total=300, sock_connect=30)
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout)


@asynccontextmanager
async def connect_release() -> AsyncIterator[BenchCluster]:
    """Connect to the release of KUBECONFIG. The gateway's URL is its Service's address, which only nodes reach."""
    async with KubeClient.connect(kubeconfig=Path(os.environ["KUBECONFIG"])) as kube, client() as session:
        service = await kube.get(resource_path("services", namespace=SYSTEM, name=f"{RELEASE}-gateway"))
        secret = await kube.get(resource_path("secrets", namespace=SYSTEM, name=f"{RELEASE}-initial-api-key"))
        key = base64.b64decode(secret["data"]["api-key"]).decode()
        gateway = f"http://{service['spec']['clusterIP']}:{service['spec']['ports'][0]['port']}"
        yield BenchCluster(kube=kube, session=session, gateway=gateway, headers={"Authorization": f"Bearer {key}"})


@asynccontextmanager
async def connect_inside() -> AsyncIterator[BenchCluster]:
    """Connect from a pod of the cluster, with its ServiceAccount and with the gateway that its environment names."""
    async with KubeClient.connect() as kube, client() as session:
        headers = {"Authorization": f"Bearer {os.environ['BENCH_API_KEY']}"}
        yield BenchCluster(kube=kube, session=session, gateway=os.environ["BENCH_GATEWAY"], headers=headers)
