"""A broker with a fake API server and real MCP servers."""

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.component.broker.servers import Toolbox, serving, toolbox
from tests.support.api_server import FakeApiServer
from tests.support.constants import DEADLINE, SANDBOX_KEY
from tests.support.grants import make_grant
from tests.support.until import until

from mcp_exec_api.constants import EXECUTIONS, TOOL_SERVERS
from mcp_exec_broker.core.feature import OpenFeature
from mcp_exec_broker.features import FEATURES
from mcp_exec_broker.manager import BrokerManager
from mcp_exec_broker.settings import Settings
from mcp_exec_common.broker.grants import GrantSigner
from mcp_exec_common.kube.client import KubeClient, custom_resource_path, resource_path
from mcp_exec_common.kube.credentials import KubeCredentials
from mcp_exec_common.process.http_server import build_server
from mcp_exec_common.sandbox_keys import SandboxKeys

TS = custom_resource_path(TOOL_SERVERS, namespace="agents")
CEX = custom_resource_path(EXECUTIONS, namespace="agents")
SECRETS = resource_path("secrets", namespace="agents")
SIGNER = GrantSigner(keys=SandboxKeys(SANDBOX_KEY))
LOOPBACK = "127.0.0.0/8,::1/128"
"""Networks of the servers of tests, which the broker refuses by default."""

Object = dict[str, Any]


def grant(**changes: Any) -> str:
    """Return the grant token of an execution."""
    return SIGNER.sign(make_grant(**({"pod_address": "127.0.0.1"} | changes)))


def secret(name: str, **data: str) -> Object:
    return {
        "metadata": {"name": name},
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
    }


@dataclass
class World:
    """The broker under test."""

    api: FakeApiServer
    broker: BrokerManager
    session: aiohttp.ClientSession
    url: str
    control: str

    def add(self, name: str, *, status: Object | None = None, **spec: Any) -> None:
        """Create a ToolServer, or change its spec."""
        old = self.api.collections.get(TS, {}).get(name)
        generation = 1 + (old["metadata"].get("generation", 1) if old else 0)
        item: Object = {"metadata": {"name": name, "generation": generation}, "spec": spec}
        if old:
            item["metadata"]["uid"] = old["metadata"]["uid"]
        self.api.put(TS, item | {"status": status or (old or {}).get("status", {})})

    def status(self, name: str) -> Object:
        return self.api.collections[TS][name].get("status") or {}

    async def listed(self, name: str) -> None:
        """Wait until the server's status is available."""
        await until(lambda: self.status(name).get("available"))

    async def lines(
        self, tool: str, *, token: str | None = None, within: float | None = None, **arguments: Any
    ) -> list[Object]:
        """Call a tool and return all lines of the answer."""
        body: Object = {"id": "1", "tool": tool, "arguments": arguments}
        if within is not None:
            body["timeoutSeconds"] = within
        headers = {"Authorization": f"Bearer {token or grant()}"}
        async with (
            asyncio.timeout(DEADLINE),
            self.session.post(f"{self.url}/v1/calls", json=body, headers=headers) as response,
        ):
            text = await response.text()
            assert response.status == 200, text
            return [json.loads(line) for line in text.splitlines()]

    async def call(self, tool: str, **options: Any) -> Object:
        """Call a tool and return the last line of the answer."""
        return (await self.lines(tool, **options))[-1]

    async def ask(self, method: str, path: str, *, service_token: str | None = None) -> tuple[int, Any]:
        """Send a request to the control port; return status and body."""
        headers = {"Authorization": f"Bearer {service_token or SIGNER.sign_service_token('gateway')}"}
        async with (
            asyncio.timeout(DEADLINE),
            self.session.request(method, self.control + path, headers=headers) as response,
        ):
            text = await response.text()
            return response.status, json.loads(text) if response.content_type == "application/json" else text


@asynccontextmanager
async def running(
    api: FakeApiServer, folder: Path, *, features: Mapping[str, OpenFeature] = FEATURES, **changes: Any
) -> AsyncIterator[World]:
    """Run a broker and yield it once it is ready."""
    keys = folder / "sandbox-key"
    keys.mkdir(exist_ok=True)
    (keys / "key").write_bytes(SANDBOX_KEY)
    given: Object = {
        "namespaces": ("agents",),
        "release_namespace": "mcp-exec-system",
        "release_secrets": ("release-key",),
        "sandbox_key_folder": keys,
        "audit_file": folder / "audit.sqlite",
        "connect_timeout_seconds": 10,
        "allowed_addresses": LOOPBACK,
    }
    settings = Settings(**(given | changes))
    async with (
        aiohttp.ClientSession(base_url=api.url, connector=aiohttp.TCPConnector(limit=0)) as kube_session,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
    ):
        kube = KubeClient(
            session=kube_session, credentials=KubeCredentials(server=""), retry_delays=(0.001,), timeout_seconds=5
        )
        async with BrokerManager.run(settings, kube=kube, features=features) as broker:
            servers, tasks, urls = [], [], []
            for app in (broker.sandbox_app, broker.control.build_app()):
                server = build_server(app, port=0, keep_alive_seconds=330, shutdown_seconds=1)
                listener = socket.create_server(("127.0.0.1", 0))
                urls.append(f"http://127.0.0.1:{listener.getsockname()[1]}")
                servers.append((server, listener))
                tasks.append(asyncio.create_task(server.serve(sockets=[listener])))
            try:
                await until(lambda: not broker.health.list_missing())
                yield World(api, broker, session, *urls)
            finally:
                for server, _ in servers:
                    server.should_exit = server.force_exit = True
                await asyncio.gather(*tasks)
                for _, listener in servers:
                    listener.close()


@pytest.fixture
async def api() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer().running() as server:
        yield server


@pytest.fixture
async def world(api: FakeApiServer, tmp_path: Path) -> AsyncIterator[World]:
    async with running(api, tmp_path) as made:
        yield made


@pytest.fixture
async def box(world: World) -> AsyncIterator[Toolbox]:
    """Run a server of the newest protocol as ToolServer `box`."""
    async with serving(toolbox()) as made:
        world.add("box", url=made.url)
        await world.listed("box")
        yield made
