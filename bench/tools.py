"""Measure what the broker adds to a tool call: latency and calls per second, compared with direct calls of the server.

The server (bench/tool_server.py) has one tool that takes a millisecond. The `mcp` SDK's client calls it over one
connection; requests in the form of a sandbox's call it through a real broker process; both with 1, 16 and 64 calls at
once, in alternating rounds. All processes run on this machine and use loopback. The broker applies policy, scans and
audits as in production; its API server is a fake in memory, which is not on the path of a call.

    python bench/tools.py --json tools.json
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from harness import inherit_environment, parser, percentile, run, table, write_json
from mcp import Client
from processes import ChildProcess, child
from tests.support.api_server import FakeApiServer
from tests.support.pace import paced
from tests.support.ports import free_port
from waits import within

from mcp_exec_api.constants import API_VERSION, TOOL_SERVERS
from mcp_exec_api.sandbox_pool import PoolTools
from mcp_exec_common.broker.grants import Grant, GrantSigner
from mcp_exec_common.kube.client import custom_resource_path
from mcp_exec_common.sandbox_keys import SandboxKeys

AT_ONCE = (1, 16, 64)
KEY = b"the key of the benchmark"
NAMESPACE = "agents"
RELEASE_NAMESPACE = "mcp-exec-system"
DEADLINE = paced(30.0)
ROUND_SECONDS = 300.0
"""Limit of one round of calls."""
ARGUMENTS = {"text": "a line of text as a tool may be given"}
MAX_CALLS = 10_000

Call = Callable[[int], Awaitable[None]]


@asynccontextmanager
async def run_process(*arguments: str, log: Path, env: Mapping[str, str] | None = None) -> AsyncIterator[ChildProcess]:
    """Run Python with these arguments while the context is open. Its output goes to a file."""
    environment = {**inherit_environment(), **(env or {})}
    async with child([sys.executable, *arguments], environment=environment, log=log, end_seconds=15) as running:
        yield running


@asynccontextmanager
async def run_tool_server(folder: Path, *, tools: int = 0) -> AsyncIterator[str]:
    """Run the server with the tool, or with so many that can't be called, and yield its URL."""
    port = free_port()
    server = str(Path(__file__).with_name("tool_server.py"))
    async with run_process(server, str(port), str(tools), log=folder / "server.log"):
        await wait_for_port(port)
        yield f"http://127.0.0.1:{port}/mcp"


async def wait_for_port(port: int) -> None:
    """Wait until a process listens on the port."""
    async with within(DEADLINE, f"a process that listens on port {port}"):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


def write_environment(api: FakeApiServer, folder: Path, **more: str) -> dict[str, str]:
    """Write the files that a process needs, and return its environment.

    At its end it waits for nothing: no operator closes the benchmark's executions, and no balancer needs to notice.
    """
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
    given = {
        "NAMESPACES": NAMESPACE,
        "RELEASE_NAMESPACE": RELEASE_NAMESPACE,
        "SANDBOX_KEY_FOLDER": str(folder),
        "KUBECONFIG": str(folder / "kubeconfig"),
        "DRAIN_SECONDS": "0",
        "SHUTDOWN_SECONDS": "0",
        **more,
    }
    return {f"MCP_EXEC_{name}": value for name, value in given.items()}


@dataclass(frozen=True, kw_only=True)
class RunningBroker:
    """A broker process with an API server of its own."""

    api: FakeApiServer
    url: str
    """Its address for sandboxes."""
    control_port: int
    pid: int


@asynccontextmanager
async def run_broker(
    folder: Path, *, tools: str = "", concurrency: int = 1, settings: Mapping[str, str] | None = None
) -> AsyncIterator[RunningBroker]:
    """Run a broker, in front of the server at the URL `tools`."""
    async with FakeApiServer().running() as api:
        if tools:
            spec = {"url": tools, "limits": {"concurrency": 2 * concurrency}}
            item = {"apiVersion": API_VERSION, "kind": "ToolServer", "metadata": {"name": "bench"}, "spec": spec}
            api.put(custom_resource_path(TOOL_SERVERS, namespace=NAMESPACE), item)
        port, control_port = free_port(), free_port()
        ports = {"PORT": str(port), "CONTROL_PORT": str(control_port), "ALLOWED_ADDRESSES": "127.0.0.0/8"}
        more = {"AUDIT_FILE": str(folder / "audit.sqlite"), **ports, **(settings or {})}
        env = write_environment(api, folder, **more)
        async with run_process("-m", "mcp_exec_broker", log=folder / "broker.log", env=env) as running:
            await wait_for_port(port)
            url = f"http://127.0.0.1:{port}"
            yield RunningBroker(api=api, url=url, control_port=control_port, pid=running.pid)


def sign_grant() -> str:
    """Return the grant token of a new execution."""
    return GrantSigner(keys=SandboxKeys(KEY)).sign(
        Grant(
            execution=str(uuid.uuid4()),
            name="bench",
            namespace=NAMESPACE,
            pool="default",
            tools=["bench.*"],
            pool_tools=PoolTools(),
            tool_calls=MAX_CALLS,
            pod_address="127.0.0.1",
            replica="",
            expires=int(time.time()) + 400,
        )
    )


class Sandboxes:
    """Calls through the broker in the form of sandboxes; several, because each execution is limited to ten at once."""

    def __init__(self, url: str, session: aiohttp.ClientSession, *, number: int) -> None:
        self._url = f"{url}/v1/calls"
        self._session = session
        self._tokens = [sign_grant() for _ in range(number)]

    async def call(self, number: int) -> None:
        """Make one call. Raises RuntimeError if its answer is not the number."""
        body = {"id": f"call-{number}", "tool": "bench.wait", "arguments": {"number": number, **ARGUMENTS}}
        headers = {"Authorization": f"Bearer {self._tokens[number % len(self._tokens)]}"}
        async with self._session.post(self._url, json=body, headers=headers) as response:
            text = await response.text()
        last = json.loads(text.splitlines()[-1]) if response.status == 200 else {}
        if last.get("value") != {"number": number}:
            raise RuntimeError(f"the broker answers {response.status}: {text[:500]}")


def build_direct_call(client: Client) -> Call:
    """Return a function that calls the server by the SDK's client."""

    async def call(number: int) -> None:
        result = await client.call_tool("wait", {"number": number, **ARGUMENTS})
        if result.structured_content != {"number": number}:
            raise RuntimeError(f"the server answers {result}")

    return call


async def connect_client(stack: AsyncExitStack, client: Client) -> Client:
    """Connect a client of the SDK until the stack closes."""
    async with within(DEADLINE, "the connection of the SDK's client"):
        return await stack.enter_async_context(client)


async def wait_for_success(call: Call) -> None:
    """Wait until calls succeed: a broker may not have listed the server's tools yet."""
    last: list[object] = ["no answer"]
    async with within(DEADLINE, "a call of the tool that succeeds", state=lambda: last[0]):
        while True:
            try:
                return await call(0)
            except RuntimeError as error:
                last[0] = error
                await asyncio.sleep(0.1)


async def measure_round(call: Call, *, at_once: int, calls: int) -> tuple[list[float], float]:
    """Return the milliseconds of each call, and the calls per second."""
    numbers = iter(range(calls))
    samples: list[float] = []

    async def caller() -> None:
        for number in numbers:
            started = time.perf_counter()
            await call(number)
            samples.append((time.perf_counter() - started) * 1000)

    started = time.perf_counter()
    async with within(ROUND_SECONDS, f"{calls} calls, {at_once} at once", state=lambda: len(samples)):
        await asyncio.gather(*(caller() for _ in range(at_once)))
    return samples, calls / (time.perf_counter() - started)


def summarize(samples: list[float], rates: list[float]) -> dict[str, float]:
    """Return one row of the table."""
    return {
        "calls": len(samples),
        "p50 ms": round(percentile(samples, 0.5), 2),
        "p99 ms": round(percentile(samples, 0.99), 2),
        "calls/s": round(statistics.median(rates)),
    }


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run all rounds."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = await stack.enter_async_context(run_tool_server(folder))
        client = await connect_client(stack, Client(url))
        broker = await stack.enter_async_context(run_broker(folder, tools=url, concurrency=max(AT_ONCE)))
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        results: dict[str, Any] = {}
        for at_once in AT_ONCE:
            sandboxes = Sandboxes(broker.url, session, number=-(-at_once // 8))
            ways: dict[str, Call] = {"direct": build_direct_call(client), "broker": sandboxes.call}
            results[str(at_once)] = await compare(options, ways, at_once)
            print_comparison(at_once, results[str(at_once)])
        return {"tool ms": 1, "at once": results}


async def compare(options: argparse.Namespace, ways: dict[str, Call], at_once: int) -> dict[str, Any]:
    """Measure `direct` and another way with a number of calls at once, in alternating rounds."""
    samples: dict[str, list[float]] = {way: [] for way in ways}
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for call in ways.values():
        await wait_for_success(call)
        await measure_round(call, at_once=at_once, calls=options.warm_up)
    for _ in range(options.rounds):
        for way, call in ways.items():
            times, rate = await measure_round(call, at_once=at_once, calls=options.calls)
            samples[way] += times
            rates[way].append(rate)
    rows = {way: summarize(samples[way], rates[way]) for way in ways}
    direct, other = rows.values()
    return {
        "ways": rows,
        "added p50 ms": round(other["p50 ms"] - direct["p50 ms"], 2),
        "added p99 ms": round(other["p99 ms"] - direct["p99 ms"], 2),
        "ratio p50": round(other["p50 ms"] / direct["p50 ms"], 2),
        "ratio p99": round(other["p99 ms"] / direct["p99 ms"], 2),
        "ratio calls/s": round(other["calls/s"] / direct["calls/s"], 2),
        "samples": {way: [round(sample, 3) for sample in times] for way, times in samples.items()},
    }


def print_comparison(at_once: int, comparison: dict[str, Any]) -> None:
    """Print the results for one number of calls at once."""
    print(f"\n{at_once} at once:")
    print(table(comparison["ways"]))
    print(
        f"the other way adds {comparison['added p50 ms']} ms (p50) and {comparison['added p99 ms']} ms (p99):"
        f" {comparison['ratio p50']} and {comparison['ratio p99']} times the direct call,"
        f" and {comparison['ratio calls/s']} of its calls per second"
    )


def main() -> None:
    """Run the command."""
    options = parser(__doc__)
    options.add_argument("--calls", type=int, default=500, help="calls per round and way (default: 500)")
    options.add_argument("--rounds", type=int, default=4, help="rounds per way (default: 4)")
    options.add_argument("--warm-up", type=int, default=200, help="calls before the first round (default: 200)")
    arguments = options.parse_args()
    write_json(arguments.json, run(measure(arguments)))


if __name__ == "__main__":
    main()
