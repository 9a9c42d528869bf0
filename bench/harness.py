"""What the benchmarks share: percentiles, tables, JSON files, and the cluster that they measure."""

import argparse
import asyncio
import base64
import json
import math
import os
import platform
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from mcp_exec_api.kube import Kube, custom_path, path_of
from mcp_exec_api.meta import micro_time, now
from mcp_exec_api.names import LABEL_POOL

SYSTEM, NAMESPACE, RELEASE = "mcp-exec-system", "agents", "mcp-exec"


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that at least `share` (0 to 1) of all samples don't exceed: the nearest-rank definition."""
    ordered = sorted(samples)
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1]


def summary(samples: Sequence[float]) -> dict[str, float]:
    """Number, median and tail of samples in milliseconds."""
    found = {f"p{round(share * 100)}": round(percentile(samples, share), 2) for share in (0.5, 0.9, 0.95, 0.99)}
    return {"n": len(samples), **found, "max": round(max(samples), 2)}


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Rows of equal columns as aligned text."""
    columns = list(next(iter(rows.values())))
    lines = [["", *columns], *([name, *(str(row.get(column, "")) for column in columns)] for name, row in rows.items())]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns) + 1)]
    return "\n".join(
        "  ".join(cell.ljust(width) if not index else cell.rjust(width) for index, (cell, width) in
                  enumerate(zip(line, widths, strict=True)))
        for line in lines
    )  # fmt: skip


def parser(description: str | None) -> argparse.ArgumentParser:
    """Options that every benchmark has."""
    found = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--json", type=Path, metavar="FILE", help="writes all figures and samples there")
    found.add_argument("--pool", default="gvisor", help="the SandboxPool to use (default: gvisor)")
    return found


def write_json(path: Path | None, figures: dict[str, Any]) -> None:
    """Writes the figures, with what they were measured on."""
    if path is not None:
        machine = {"cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
        path.write_text(json.dumps({"at": micro_time(now()), "machine": machine, **figures}, indent=1) + "\n")


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The installed release: the API server, and the gateway as its clients meet it."""

    kube: Kube
    session: aiohttp.ClientSession
    gateway: str
    headers: dict[str, str]

    async def execute(self, code: str, *, pool: str, wait: int = 120, **spec: Any) -> dict[str, Any]:
        """Runs code through the gateway and returns its answer."""
        body = {"code": code, "poolRef": {"name": pool}, **spec}
        async with self.session.post(
            f"{self.gateway}/v1/executions", params={"wait": str(wait)}, json=body, headers=self.headers
        ) as response:
            answer: dict[str, Any] = await response.json()
            if response.status != 200:
                raise RuntimeError(f"the gateway answered {response.status}: {answer}")
            return answer

    async def pool(self, name: str) -> dict[str, Any]:
        """A SandboxPool."""
        return await self.kube.get(custom_path("sandboxpools", namespace=NAMESPACE, name=name))

    async def scale(self, name: str, warm: int) -> None:
        """Sets how many pods of a pool are warm."""
        await self.kube.patch(
            custom_path("sandboxpools", namespace=NAMESPACE, name=name), {"spec": {"warm": {"min": warm}}}
        )

    async def settled(self, name: str, *, seconds: float = 180) -> None:
        """Waits until the pool has all its warm pods and none that start or run."""
        path, selector = path_of("pods", namespace=NAMESPACE), f"{LABEL_POOL}={name}"
        async with asyncio.timeout(seconds):
            while True:
                # The operator writes a pool's status once a second at most: an older one tells of what was before.
                await asyncio.sleep(1.2)
                found = await self.pool(name)
                status, wanted = found.get("status", {}), found["spec"]["warm"]["min"]
                pods, _ = await self.kube.list(path, selector=selector)
                pods = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
                if status.get("warm") == wanted == len(pods) and not status.get("busy", 0):
                    return


@asynccontextmanager
async def connected() -> AsyncIterator[Bench]:
    """The release that KUBECONFIG names, its gateway by the Service's address: run it on a node."""
    async with Kube.connect(kubeconfig=Path(os.environ["KUBECONFIG"])) as kube, aiohttp.ClientSession() as session:
        service = await kube.get(path_of("services", namespace=SYSTEM, name=f"{RELEASE}-gateway"))
        secret = await kube.get(path_of("secrets", namespace=SYSTEM, name=f"{RELEASE}-initial-api-key"))
        key = base64.b64decode(secret["data"]["api-key"]).decode()
        gateway = f"http://{service['spec']['clusterIP']}:{service['spec']['ports'][0]['port']}"
        yield Bench(kube=kube, session=session, gateway=gateway, headers={"Authorization": f"Bearer {key}"})
