"""Latency of `run_code` through `/mcp`, compared with the REST call of the same code in the same run.

Samples of each way are taken in turn, so that all meet the same load; before each the pool is full. The client is the
same HTTP session for all ways: what an SDK adds in the client is not measured. The file is not called `mcp`, because
it would hide the SDK's package from the programs of this folder.

    KUBECONFIG=... python bench/mcp_endpoint.py --pool gvisor --rounds 60 --json mcp.json
"""

import json
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from harness import BenchCluster, connect_release, parser, run, summary, table, write_json
from waits import within

MODERN, SESSIONS = "2026-07-28", "2025-11-25"
CODE: Final = "print(1)"
ALLOWED_MS: Final = 3.0
"""What a call by /mcp may take longer than by REST, at p50."""
CALL_SECONDS: Final = 120.0
ACCEPT: Final = "application/json, text/event-stream"

Way = Callable[[], Awaitable[str]]


class McpCaller:
    """Calls of `run_code` in one revision."""

    def __init__(self, bench: BenchCluster, *, pool: str) -> None:
        self.bench = bench
        self.url = f"{bench.gateway}/mcp?pool={pool}"
        self.number = 0
        self.session: dict[str, str] = {}

    async def post(self, message: dict[str, Any], headers: dict[str, str]) -> tuple[dict[str, Any], Any]:
        """Send a message, and return the last message of the response and its headers."""
        sent = {**self.bench.headers, "Accept": ACCEPT, **headers}
        request = self.bench.session.post(self.url, json={"jsonrpc": "2.0", **message}, headers=sent)
        async with within(CALL_SECONDS, f"the answer of {self.url} to {message['method']}"), request as response:
            text = await response.text()
            if response.content_type == "text/event-stream":
                text = text.rstrip().rpartition("data: ")[2]
            answer: dict[str, Any] = json.loads(text)
            if "result" not in answer:
                raise RuntimeError(f"the gateway answered {response.status}: {text[:500]}")
            return answer["result"], response.headers

    async def initialize(self) -> None:
        """Begin a session of the revisions that have sessions."""
        info = {"name": "bench", "version": "1"}
        params = {"protocolVersion": SESSIONS, "capabilities": {}, "clientInfo": info}
        _, headers = await self.post({"id": 0, "method": "initialize", "params": params}, {})
        self.session = {"Mcp-Session-Id": headers["Mcp-Session-Id"], "MCP-Protocol-Version": SESSIONS}

    async def call(self, *, revision: str, progress: bool) -> str:
        """Run the code, and return what it printed."""
        self.number += 1
        meta: dict[str, Any] = {"progressToken": self.number} if progress else {}
        headers = self.session
        if revision == MODERN:
            prefix = "io.modelcontextprotocol/"
            meta |= {f"{prefix}protocolVersion": MODERN, f"{prefix}clientCapabilities": {}}
            headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "run_code"}
        params = {"name": "run_code", "arguments": {"code": CODE}, "_meta": meta}
        result, _ = await self.post({"id": self.number, "method": "tools/call", "params": params}, headers)
        return str(result["structuredContent"]["stdout"])


async def measure(bench: BenchCluster, *, pool: str, rounds: int) -> dict[str, list[float]]:
    """Take a sample of each way in each round."""
    caller = McpCaller(bench, pool=pool)
    await caller.initialize()

    async def call_rest() -> str:
        return str((await bench.execute(CODE, pool=pool, tools=["*.*"]))["output"]["stdout"])

    ways: dict[str, Way] = {
        "REST": call_rest,
        f"/mcp {MODERN}": lambda: caller.call(revision=MODERN, progress=False),
        f"/mcp {SESSIONS}": lambda: caller.call(revision=SESSIONS, progress=False),
        f"/mcp {MODERN}, progress": lambda: caller.call(revision=MODERN, progress=True),
    }
    samples: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            await bench.wait_until_warm(pool, WARM, seconds=60)
            start = time.perf_counter()
            printed = await way()
            samples[name].append((time.perf_counter() - start) * 1000)
            if printed != "1\n":
                raise RuntimeError(f"{name}: not what was printed: {printed!r}")
    return samples


WARM: Final = 2
"""Warm pods of the pool while it is measured."""


async def main() -> None:
    """Run the command. Names the ways by /mcp without progress that take too long."""
    options = parser(__doc__, pool="gvisor")
    options.add_argument("--rounds", type=int, default=60, help="samples of each way")
    arguments = options.parse_args()
    async with connect_release() as bench:
        before = (await bench.pool(arguments.pool))["spec"]["warm"]["min"]
        try:
            await bench.scale(arguments.pool, WARM)
            await bench.wait_until_settled(arguments.pool)
            samples = await measure(bench, pool=arguments.pool, rounds=arguments.rounds)
        finally:
            await bench.scale(arguments.pool, before)
    rows = {name: summary(each) for name, each in samples.items()}
    print(f"\n{arguments.pool}, {CODE}, ms, from this machine")
    print(table(rows))
    write_json(arguments.json, {"pool": arguments.pool, "summary": rows, "samples": samples})
    more = {name: row["p50"] - rows["REST"]["p50"] for name, row in rows.items() if name != "REST"}
    print("more than REST at p50: " + ", ".join(f"{name} {value:+.2f} ms" for name, value in more.items()))
    slow = [name for name, value in more.items() if value > ALLOWED_MS and "progress" not in name]
    if slow:
        print(f"more than {ALLOWED_MS:g} ms above REST: {', '.join(slow)}")


if __name__ == "__main__":
    run(main())
