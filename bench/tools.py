"""What the broker adds to a tool call: latency and calls per second, against calling the same server directly.

The server (bench/tool_server.py) has one tool that takes a millisecond. It is called by the `mcp` SDK's client over one
connection, and by the requests that a sandbox sends to a real broker process in front of it, at 1, 16 and 64 calls at
once. All of it is on this machine, over loopback, each process for itself. The broker judges, scans and audits as it
does anywhere; its API server is one in memory, which is not on the path of a call. Rounds of both alternate.

    python bench/tools.py --json tools.json
"""

import argparse
import asyncio
import json
import os
import socket
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from harness import percentile, run, table, write_json
from mcp import Client

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from tests.support.api_server import FakeApiServer  # noqa: E402

from mcp_exec_api.constants import API_VERSION, TOOL_SERVERS  # noqa: E402
from mcp_exec_api.sandbox_pool import PoolTools  # noqa: E402
from mcp_exec_common.broker.grants import Grant, GrantSigner  # noqa: E402
from mcp_exec_common.kube.client import custom_resource_path  # noqa: E402

AT_ONCE = (1, 16, 64)
KEY = b"the key of the benchmark"
NAMESPACE = "agents"
DEADLINE = 30.0
ARGUMENTS = {"text": "a line of text as a tool may be given"}
MOST_CALLS = 10_000

Call = Callable[[int], Awaitable[None]]


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def tail(log: Path) -> str:
    """The end of a file."""
    return log.read_text(errors="replace")[-3000:]


@asynccontextmanager
async def process(*command: str, log: Path, env: dict[str, str] | None = None) -> AsyncIterator[None]:
    """A process that ends with the context. It writes into a file, whose end is shown where the context fails."""
    with log.open("wb") as output:
        child = await asyncio.create_subprocess_exec(
            sys.executable, *command, env=os.environ | (env or {}), stdout=output, stderr=output
        )
    try:
        yield
    except Exception:
        print(tail(log), file=sys.stderr)
        raise
    finally:
        if child.returncode is None:
            child.terminate()
            try:
                await asyncio.wait_for(child.wait(), 15)
            except TimeoutError:
                child.kill()
                await child.wait()


async def reachable(port: int) -> None:
    """Until somebody listens."""
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


@asynccontextmanager
async def broker(tools: str, folder: Path, *, concurrency: int) -> AsyncIterator[str]:
    """A broker in front of the server; the address that sandboxes have."""
    async with FakeApiServer().running() as api:
        limits = {"concurrency": 2 * concurrency}
        spec = {"url": tools, "limits": limits}
        item = {"apiVersion": API_VERSION, "kind": "ToolServer", "metadata": {"name": "bench"}, "spec": spec}
        api.put(custom_resource_path(TOOL_SERVERS, namespace=NAMESPACE), item)
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "memory", "cluster": {"server": api.url}}],
            "users": [{"name": "bench", "user": {}}],
            "contexts": [{"name": "bench", "context": {"cluster": "memory", "user": "bench"}}],
            "current-context": "bench",
        }
        (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
        (folder / "key").write_bytes(KEY)
        port = free_port()
        env = {
            "MCP_EXEC_NAMESPACES": NAMESPACE,
            "MCP_EXEC_SANDBOX_KEY_FILE": str(folder / "key"),
            "MCP_EXEC_AUDIT_FILE": str(folder / "audit.sqlite"),
            "MCP_EXEC_KUBECONFIG": str(folder / "kubeconfig"),
            "MCP_EXEC_PORT": str(port),
            "MCP_EXEC_CONTROL_PORT": str(free_port()),
        }
        async with process("-m", "mcp_exec_broker", log=folder / "broker.log", env=env):
            await reachable(port)
            yield f"http://127.0.0.1:{port}"


def grant() -> str:
    """The token of a new execution. Each may make so many calls, and so many at once."""
    return GrantSigner(key=KEY).sign_grant(
        Grant(
            execution=str(uuid.uuid4()),
            name="bench",
            namespace=NAMESPACE,
            pool="default",
            tools=["bench.*"],
            pool_tools=PoolTools(),
            tool_calls=MOST_CALLS,
            expires=int(time.time()) + 3600,
        )
    )


class Sandboxes:
    """Calls through the broker, as sandboxes make them. An execution makes ten at once at most, so there are more."""

    def __init__(self, url: str, session: aiohttp.ClientSession, *, number: int) -> None:
        self._url = f"{url}/v1/calls"
        self._session = session
        self._tokens = [grant() for _ in range(number)]

    async def call(self, number: int) -> None:
        """One call. Raises RuntimeError where its answer is not the number."""
        body = {"id": f"call-{number}", "tool": "bench.wait", "arguments": {"number": number, **ARGUMENTS}}
        headers = {"Authorization": f"Bearer {self._tokens[number % len(self._tokens)]}"}
        async with self._session.post(self._url, json=body, headers=headers) as response:
            text = await response.text()
        last = json.loads(text.splitlines()[-1]) if response.status == 200 else {}
        if last.get("value") != {"number": number}:
            raise RuntimeError(f"the broker answers {response.status}: {text[:500]}")


def directly(client: Client) -> Call:
    """Calls by the SDK's own client."""

    async def call(number: int) -> None:
        found = await client.call_tool("wait", {"number": number, **ARGUMENTS})
        if found.structured_content != {"number": number}:
            raise RuntimeError(f"the server answers {found}")

    return call


async def settled(call: Call) -> None:
    """Until calls succeed: a broker that has just started may not know the server's tools yet."""
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                return await call(0)
            except RuntimeError:
                await asyncio.sleep(0.1)


async def measure_round(call: Call, *, at_once: int, calls: int) -> tuple[list[float], float]:
    """Milliseconds of each call, and calls per second."""
    numbers = iter(range(calls))
    samples: list[float] = []

    async def caller() -> None:
        for number in numbers:
            began = time.perf_counter()
            await call(number)
            samples.append((time.perf_counter() - began) * 1000)

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(at_once)))
    return samples, calls / (time.perf_counter() - began)


def figures(samples: list[float], rates: list[float]) -> dict[str, float]:
    """One row of the table."""
    return {
        "calls": len(samples),
        "p50 ms": round(percentile(samples, 0.5), 2),
        "p99 ms": round(percentile(samples, 0.99), 2),
        "calls/s": round(statistics.median(rates)),
    }


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All rounds of both ways."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port = free_port()
        server = str(Path(__file__).with_name("tool_server.py"))
        await stack.enter_async_context(process(server, str(port), log=folder / "server.log"))
        await reachable(port)
        url = f"http://127.0.0.1:{port}/mcp"
        client = await stack.enter_async_context(Client(url))
        address = await stack.enter_async_context(broker(url, folder, concurrency=max(AT_ONCE)))
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        found: dict[str, Any] = {}
        for at_once in AT_ONCE:
            found[str(at_once)] = await compare(
                options, client, Sandboxes(address, session, number=-(-at_once // 8)), at_once
            )
            show(at_once, found[str(at_once)])
        return {"tool ms": 1, "at once": found}


async def compare(options: argparse.Namespace, client: Client, sandboxes: Sandboxes, at_once: int) -> dict[str, Any]:
    """Both ways with so many calls at once, round by round in turn."""
    ways: dict[str, Call] = {"direct": directly(client), "broker": sandboxes.call}
    samples: dict[str, list[float]] = {way: [] for way in ways}
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for call in ways.values():
        await settled(call)
        await measure_round(call, at_once=at_once, calls=options.warm_up)
    for _ in range(options.rounds):
        for way, call in ways.items():
            times, rate = await measure_round(call, at_once=at_once, calls=options.calls)
            samples[way] += times
            rates[way].append(rate)
    rows = {way: figures(samples[way], rates[way]) for way in ways}
    one, other = rows["direct"], rows["broker"]
    return {
        "ways": rows,
        "added p50 ms": round(other["p50 ms"] - one["p50 ms"], 2),
        "added p99 ms": round(other["p99 ms"] - one["p99 ms"], 2),
        "ratio p50": round(other["p50 ms"] / one["p50 ms"], 2),
        "ratio p99": round(other["p99 ms"] / one["p99 ms"], 2),
        "ratio calls/s": round(other["calls/s"] / one["calls/s"], 2),
        "samples": {way: [round(each, 3) for each in times] for way, times in samples.items()},
    }


def show(at_once: int, found: dict[str, Any]) -> None:
    """One number of calls at once as text."""
    print(f"\n{at_once} at once:")
    print(table(found["ways"]))
    print(
        f"the broker adds {found['added p50 ms']} ms (p50) and {found['added p99 ms']} ms (p99): {found['ratio p50']}"
        f" and {found['ratio p99']} times the direct call, and {found['ratio calls/s']} of its calls per second"
    )


def main() -> None:
    """The command."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", type=Path, metavar="FILE", help="writes all figures and samples there")
    options.add_argument("--calls", type=int, default=500, help="calls a round and way (default: 500)")
    options.add_argument("--rounds", type=int, default=4, help="rounds of each (default: 4)")
    options.add_argument("--warm-up", type=int, default=200, help="calls before the first round (default: 200)")
    given = options.parse_args()
    write_json(given.json, run(measure(given)))


if __name__ == "__main__":
    main()
