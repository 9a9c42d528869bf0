"""Measure a direct call by `/mcp`, compared with a call of the same server without mcp-exec.

The server (bench/tool_server.py) has one tool that takes a millisecond. The `mcp` SDK's client calls it both ways, in
alternating rounds: over one connection, and over one connection to a real gateway, which calls it by a real broker. The
same follows for a bare proxy of the SDK (bench/tool_proxy.py), the floor of what one process between them costs. All
processes run on this machine and use loopback. The API server is a fake in memory, which is not on the path of a call.

    python bench/mcp_direct.py --json mcp-direct.json
"""

import argparse
import base64
import hashlib
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from harness import parser, run, write_json
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from tests.support.api_server import FakeApiServer
from tests.support.ports import free_port
from tools import (
    ARGUMENTS,
    DEADLINE,
    NAMESPACE,
    RELEASE_NAMESPACE,
    Call,
    build_direct_call,
    compare,
    connect_client,
    print_comparison,
    run_broker,
    run_process,
    run_tool_server,
    wait_for_port,
    write_environment,
)
from waits import within

from mcp_exec_api.constants import POOLS
from mcp_exec_common.kube.client import custom_resource_path, resource_path

AT_ONCE = (1, 16)
API_KEY = "mcpx_" + "b" * 43
SERVICE = "mcp-exec-broker"


def put_objects(api: FakeApiServer, *, control_port: int) -> None:
    """Create the pool, the API key and the slice of the broker's Service."""
    api.put(custom_resource_path(POOLS, namespace=NAMESPACE), {"metadata": {"name": "default"}, "spec": {"image": "i"}})
    limits = {"directCallsPerMinute": 1_000_000}
    entry = {"sha256": hashlib.sha256(API_KEY.encode()).hexdigest(), "namespace": NAMESPACE, "limits": limits}
    data = {"bench": base64.b64encode(json.dumps(entry).encode()).decode()}
    api.put(resource_path("secrets", namespace=RELEASE_NAMESPACE), {"metadata": {"name": "api-keys"}, "data": data})
    endpoint = {"addresses": ["127.0.0.1"], "targetRef": {"uid": "broker"}, "conditions": {"ready": True}}
    slices = resource_path("endpointslices", namespace=RELEASE_NAMESPACE, group="discovery.k8s.io/v1")
    metadata = {"name": f"{SERVICE}-x1", "labels": {"kubernetes.io/service-name": SERVICE}}
    ports = [{"name": "control", "port": control_port}]
    api.put(slices, {"metadata": metadata, "addressType": "IPv4", "endpoints": [endpoint], "ports": ports})


@asynccontextmanager
async def run_gateway(api: FakeApiServer, folder: Path) -> AsyncIterator[str]:
    """Run a gateway, and yield its URL."""
    port = free_port()
    env = write_environment(
        api, folder, PORT=str(port), API_KEYS_SECRET="api-keys", BROKER_SERVICE=SERVICE, METRICS="false"
    )
    async with run_process("-m", "mcp_exec_gateway", log=folder / "gateway.log", env=env):
        await wait_for_port(port)
        yield f"http://127.0.0.1:{port}"


@asynccontextmanager
async def connect(gateway: str) -> AsyncIterator[Client]:
    """Connect to the endpoint by the SDK's client."""
    headers = {"Authorization": f"Bearer {API_KEY}"}
    async with httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30), trust_env=False) as http:
        transport = streamable_http_client(f"{gateway}/mcp?mode=direct", http_client=http)
        async with Client(transport) as client:
            yield client


def build_call(client: Client) -> Call:
    """Return a function that calls the server by the endpoint."""

    async def call(number: int) -> None:
        try:
            result = await client.call_tool("bench__wait", {"number": number, **ARGUMENTS})
        except MCPError as error:
            raise RuntimeError(str(error)) from None
        if result.structured_content != {"number": number}:
            raise RuntimeError(f"the gateway answers {result}")

    return call


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run all rounds."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = await stack.enter_async_context(run_tool_server(folder))
        own = await connect_client(stack, Client(url))
        broker = await stack.enter_async_context(run_broker(folder, tools=url, concurrency=max(AT_ONCE)))
        put_objects(broker.api, control_port=broker.control_port)
        gateway = await stack.enter_async_context(run_gateway(broker.api, folder))
        async with within(DEADLINE, "the connection to /mcp"):
            client = await stack.enter_async_context(connect(gateway))
        proxy_port = free_port()
        proxy = str(Path(__file__).with_name("tool_proxy.py"))
        await stack.enter_async_context(run_process(proxy, str(proxy_port), url, log=folder / "proxy.log"))
        await wait_for_port(proxy_port)
        bare = await connect_client(stack, Client(f"http://127.0.0.1:{proxy_port}/mcp"))
        others = {"by /mcp": build_call(client), "bare proxy": build_direct_call(bare)}
        results: dict[str, dict[str, Any]] = {}
        for at_once in AT_ONCE:
            for name, call in others.items():
                ways = {"direct": build_direct_call(own), name: call}
                results.setdefault(str(at_once), {})[name] = await compare(options, ways, at_once)
                print_comparison(at_once, results[str(at_once)][name])
        return {"tool ms": 1, "at once": results}


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
