"""Time of one sandbox, from a request to its first event and to its end, without operator and gateway.

A sandbox of this machine on loopback, and for each pool a pod like those of the pool, in a namespace of its own. Each
runs `print(1)` for one owner and is cleaned after it, so that every run has a new interpreter. It runs on the node.

    KUBECONFIG=... python bench/sandbox.py --pools runc gvisor --json sandbox.json
"""

import asyncio
import hashlib
import http.client
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from statistics import median
from typing import Any, Final

import aiohttp
from harness import BenchCluster, connect_release, parser, run, table, write_json
from inside import own_namespace, run_peer
from tests.component.sandbox.conftest import TOKEN, SandboxProcess
from waits import within

from mcp_exec_api.constants import SUPERVISOR_PORT

SECONDS: Final = 60.0
"""Limit of each answer."""
FIRST_RUNS: Final = 3
"""Runs that are not counted."""
OWNER: Final = "0a" * 16
LINES: Final = "lines = ('x' * 99 + '\\n') * 1000\nfor _ in range(1000):\n    print(lines, end='')"
"""Writes 100 MB, a thousand lines at a time."""


class SandboxCaller:
    """A client of one supervisor."""

    def __init__(self, host: str, port: int) -> None:
        self._connection = http.client.HTTPConnection(host, port, timeout=SECONDS)
        self._number = 0

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def measure(self, code: str) -> tuple[float, float]:
        """Run code and clean the sandbox. Return the milliseconds to the first event and to the last."""
        self._number += 1
        name = f"bench-{self._number}"
        job = {"id": name, "code": code, "timeoutSeconds": SECONDS, "outputBytes": 65536, "owner": OWNER}
        started = time.perf_counter()
        response = self._post("/v1/execution", job)
        last = response.readline()
        first = time.perf_counter()
        while line := response.readline():
            last = line
        ended = time.perf_counter()
        if json.loads(last).get("phase") != "Succeeded":
            raise RuntimeError(f"a run failed: {last.decode(errors='replace')[:500]}")
        self._post("/v1/recycle", {"id": name}).read()
        return (first - started) * 1000, (ended - started) * 1000

    def _post(self, path: str, body: dict[str, Any]) -> http.client.HTTPResponse:
        self._connection.request("POST", path, json.dumps(body), {"authorization": f"Bearer {TOKEN}"})
        response = self._connection.getresponse()
        if response.status != http.HTTPStatus.OK:
            raise RuntimeError(f"{path}: {response.status}: {response.read().decode(errors='replace')[:500]}")
        return response


def measure(host: str, port: int, *, rounds: int) -> dict[str, float]:
    """Return the medians of one sandbox."""
    caller = SandboxCaller(host, port)
    try:
        for _ in range(FIRST_RUNS):
            caller.measure("print(1)")
        samples = [caller.measure("print(1)") for _ in range(rounds)]
        _, output = caller.measure(LINES)
    finally:
        caller.close()
    return {
        "first event ms": round(median(first for first, _ in samples), 2),
        "end ms": round(median(end for _, end in samples), 2),
        "100 MB s": round(output / 1000, 2),
    }


def measure_loopback(*, rounds: int) -> dict[str, float]:
    """Return the medians of a sandbox on loopback."""
    sandbox = SandboxProcess()
    try:
        port = sandbox.client.base_url.port
        assert port is not None
        return measure("127.0.0.1", port, rounds=rounds)
    finally:
        sandbox.close()


async def measure_pools(pools: Sequence[str], *, rounds: int) -> dict[str, dict[str, float]]:
    """Return the medians of a pod like those of each pool."""
    rows = {}
    async with connect_release() as bench:
        for pool in pools:
            async with own_namespace(bench) as namespace:
                digest = hashlib.sha256(TOKEN.encode()).hexdigest()
                peer = await run_peer(bench, namespace, pool=pool, token_sha256=digest)
                async with within(SECONDS, f"the supervisor of the pod {peer.address} to be idle"):
                    while not await is_idle(bench, peer.address):  # noqa: ASYNC110 - another process
                        await asyncio.sleep(0.1)
                rows[pool] = await asyncio.to_thread(measure, peer.address, SUPERVISOR_PORT, rounds=rounds)
    return rows


async def is_idle(bench: BenchCluster, host: str) -> bool:
    """Return whether a pod's supervisor listens and waits for a job."""
    with suppress(aiohttp.ClientError, TimeoutError, ValueError):
        url, timeout = f"http://{host}:{SUPERVISOR_PORT}/healthz", aiohttp.ClientTimeout(total=2)
        async with bench.session.get(url, timeout=timeout) as response:
            return bool((await response.json()).get("state") == "idle")
    return False


async def measure_all(pools: Sequence[str], *, rounds: int) -> dict[str, dict[str, float]]:
    """Measure loopback and all pools."""
    rows = {"loopback": await asyncio.to_thread(measure_loopback, rounds=rounds)}
    return rows | (await measure_pools(pools, rounds=rounds) if pools else {})


def main() -> None:
    """Run the command."""
    options = parser(__doc__)
    options.add_argument("--pools", nargs="*", default=[], help="pools whose pods to measure (default: none)")
    options.add_argument("--rounds", type=int, default=100, help="runs of each sandbox (default: 100)")
    arguments = options.parse_args()
    rows = run(measure_all(arguments.pools, rounds=arguments.rounds))
    print(table(rows))
    write_json(arguments.json, {"rows": rows})


if __name__ == "__main__":
    main()
