"""Measure what dense results of an MCP server take from the broker: its memory, and the longest stall of its loop.

A server in a process of its own answers calls with 8 MiB of empty lists, as text, as values or as an event. Ten
executions call it at once. Meanwhile the broker gets a request for a path that it lacks, every few milliseconds: the
longest time until such an answer is the longest stall, and the floor is the same with small results.

    python bench/memory.py --json memory.json
"""

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
from harness import percentile, run, table, write_json
from tools import (
    API_VERSION,
    DEADLINE,
    NAMESPACE,
    ROOT,
    run_process,
    sign_grant,
    wait_for_port,
    wait_for_success,
    write_environment,
)
from waits import within

sys.path.append(str(ROOT))

from tests.support.api_server import FakeApiServer
from tests.support.ports import free_port

from mcp_exec_api.constants import TOOL_SERVERS
from mcp_exec_common.kube.client import custom_resource_path

LISTS = b"[" + b"[]," * 2_700_000 + b"0]"
RESULTS = {
    "small": b'{"content":[{"type":"text","text":"done"}]}',
    "text": b'{"content":[{"type":"text","text":"%b"}]}' % LISTS,
    "values": b'{"content":[],"structuredContent":{"a":%b}}' % LISTS,
    "event": b'{"content":[],"structuredContent":{"a":%b}}' % LISTS,
}
PROBE_SECONDS = 0.005
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


async def serve(port: int) -> None:
    """Serve MCP, with one tool for each result."""
    server = await asyncio.start_server(answer_all, "127.0.0.1", port)
    await server.serve_forever()


async def answer_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection."""
    async for message in read_requests(reader):
        kind, body = build_answer(message)
        head = f"HTTP/1.1 {200 if body else 202} OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
    writer.close()


async def read_requests(reader: asyncio.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """Yield the messages of a connection until it ends."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = _LENGTH.search(head)
            yield json.loads(await reader.readexactly(int(length[1])) if length else b"{}")
    except (asyncio.IncompleteReadError, OSError):
        return


def build_answer(message: dict[str, Any]) -> tuple[str, bytes]:
    """Return the content type and the body of the answer to a message."""
    method, number = message.get("method"), message.get("id")
    if number is None:
        return "application/json", b""
    result = b"{}"
    if method == "initialize":
        info = {"name": "dense", "version": "1"}
        version = message["params"]["protocolVersion"]
        result = json.dumps({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}).encode()
    elif method == "tools/list":
        result = json.dumps({"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in RESULTS]}).encode()
    elif method == "tools/call":
        result = RESULTS[message["params"]["name"]]
    else:
        error = {"code": -32601, "message": "unknown"}
        return "application/json", json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode()
    body = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (json.dumps(number).encode(), result)
    if method == "tools/call" and message["params"]["name"] == "event":
        return "text/event-stream", b"event: message\ndata: " + body + b"\n\n"
    return "application/json", body


class Broker:
    """A broker process, and what it takes."""

    def __init__(self, url: str, pid: int, session: aiohttp.ClientSession) -> None:
        self._url, self._pid, self._session = url, pid, session

    async def call(self, tool: str) -> str:
        """Call a tool for a new execution. Return `done`, or the reason of the error."""
        body = {"id": "1", "tool": f"bench.{tool}", "arguments": {}}
        headers = {"Authorization": f"Bearer {sign_grant()}"}
        async with self._session.post(f"{self._url}/v1/calls", json=body, headers=headers) as response:
            lines = (await response.read()).splitlines()
        last = json.loads(lines[-1]) if response.status == 200 else {"type": "error", "reason": response.status}
        return "done" if last["type"] == "result" else str(last["reason"] or last["message"])

    async def call_small(self, number: int) -> None:
        """Call the tool with the small result. Raises RuntimeError if it fails."""
        if (outcome := await self.call("small")) != "done":
            raise RuntimeError(outcome)

    def read_mib(self, name: str) -> int:
        """Return a figure of the process's memory."""
        lines = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(name)).split()[1]) // 1024

    async def probe(self, samples: list[float]) -> None:
        """Request a path that is not there, as long as the task runs, and note the milliseconds."""
        async with within(20 * DEADLINE, "the end of the calls"):
            while True:
                started = time.perf_counter()
                async with self._session.get(f"{self._url}/nothing") as response:
                    await response.read()
                samples.append((time.perf_counter() - started) * 1000)
                await asyncio.sleep(PROBE_SECONDS)

    async def measure(self, tool: str, *, at_once: int) -> dict[str, Any]:
        """Call a tool several times at once and return one row of the table."""
        samples: list[float] = []
        before = self.read_mib("VmRSS")
        probing = asyncio.create_task(self.probe(samples))
        async with within(10 * DEADLINE, f"{at_once} calls of {tool}"):
            outcomes = await asyncio.gather(*(self.call(tool) for _ in range(at_once)))
        probing.cancel()
        return {
            "done": outcomes.count("done"),
            "ResultTooLarge": outcomes.count("ResultTooLarge"),
            "MiB before": before,
            "peak MiB": self.read_mib("VmHWM"),
            "p50 of the loop ms": round(percentile(samples, 0.5), 1),
            "longest stall ms": round(max(samples), 1),
        }


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure each kind of result, the largest last: the peak of memory never falls."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port, broker_port = free_port(), free_port()
        await stack.enter_async_context(run_process(__file__, "--serve", str(port), log=folder / "server.log"))
        await wait_for_port(port)
        api = await stack.enter_async_context(FakeApiServer().running())
        spec = {"url": f"http://127.0.0.1:{port}/mcp", "limits": {"concurrency": 64}}
        item = {"apiVersion": API_VERSION, "kind": "ToolServer", "metadata": {"name": "bench"}, "spec": spec}
        api.put(custom_resource_path(TOOL_SERVERS, namespace=NAMESPACE), item)
        ports = {"PORT": str(broker_port), "CONTROL_PORT": str(free_port())}
        env = write_environment(
            api, folder, AUDIT_FILE=str(folder / "audit.sqlite"), ALLOWED_ADDRESSES="127.0.0.0/8", **ports
        )
        pid = await stack.enter_async_context(run_process("-m", "mcp_exec_broker", log=folder / "broker.log", env=env))
        await wait_for_port(broker_port)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        broker = Broker(f"http://127.0.0.1:{broker_port}", pid, session)
        await wait_for_success(broker.call_small)
        rows: dict[str, dict[str, Any]] = {}
        for tool in RESULTS:
            rows[tool] = await broker.measure(tool, at_once=options.at_once)
        floor = rows["small"]["longest stall ms"]
        for row in rows.values():
            row["ratio to small"] = round(row["longest stall ms"] / floor, 1)
        print(table(rows))
        return {"at once": options.at_once, "rows": rows}


def main() -> None:
    """Run the command."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    options.add_argument("--at-once", type=int, default=10, help="calls at once (default: 10)")
    options.add_argument("--serve", type=int, metavar="PORT", help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.serve:
        asyncio.run(serve(arguments.serve))
    else:
        write_json(arguments.json, run(measure(arguments)))


if __name__ == "__main__":
    main()
