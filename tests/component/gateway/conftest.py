"""The gateway on loopback with a fake API server and a client."""

import asyncio
import base64
import io
import json
import socket
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
from tests.component.gateway.commands import Command, call
from tests.support.api_server import FakeApiServer
from tests.support.broker import FakeBroker, running_broker
from tests.support.clock import Clock
from tests.support.constants import DEADLINE, SANDBOX_KEY
from tests.support.environment import no_profile
from tests.support.until import until

from mcp_exec_api.constants import EXECUTIONS, POOLS
from mcp_exec_common.api_keys import digest_key
from mcp_exec_common.kube.client import KubeClient, custom_resource_path, resource_path
from mcp_exec_common.kube.credentials import KubeCredentials
from mcp_exec_common.kube.reflector import find_unsynced
from mcp_exec_common.process.http_server import build_server
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_gateway.app import build_app, build_metrics_app
from mcp_exec_gateway.core.dependencies import Dependencies, Feature
from mcp_exec_gateway.features import FEATURES
from mcp_exec_gateway.settings import Settings

__all__ = ["no_profile"]

KEY = "mcpx_" + "k" * 43
OTHER_KEY = "mcpx_" + "o" * 43
BOSS = "mcpx_" + "b" * 43
CEX = custom_resource_path(EXECUTIONS, namespace="agents")
SBP = custom_resource_path(POOLS, namespace="agents")
SECRETS = resource_path("secrets", namespace="mcp-exec-system")
PODS = resource_path("pods", namespace="agents")

Object = dict[str, Any]


def settings(**changes: Any) -> Settings:
    given: Object = {
        "namespaces": ("agents", "others"),
        "sandbox_key_folder": Path("unused"),
        "release_namespace": "mcp-exec-system",
        "api_keys_secret": "api-keys",
        "port": 0,
        "drain_seconds": 0,
        "shutdown_seconds": 0,
    }
    return Settings(**(given | changes))


def keys_secret(**entries: Object | str) -> Object:
    data = {
        name: base64.b64encode((entry if isinstance(entry, str) else json.dumps(entry)).encode()).decode()
        for name, entry in entries.items()
    }
    return {"metadata": {"name": "api-keys"}, "data": data}


def key_entry(key: str, namespace: str = "agents", **limits: Any) -> Object:
    return {"sha256": digest_key(key), "namespace": namespace, "limits": limits}


def pool(name: str, max_timeout_seconds: int = 300) -> Object:
    return {"metadata": {"name": name}, "spec": {"image": "i", "maxTimeoutSeconds": max_timeout_seconds}}


@dataclass
class Answer:
    """A response with its body."""

    status: int
    headers: Any
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def finish(api: FakeApiServer, name: str, phase: str = "Succeeded", **status: Any) -> None:
    """Write the status that the operator writes at the end of an execution."""
    base = {
        "phase": phase,
        "reason": "",
        "start": "Warm",
        "podName": "default-abcde",
        "startedAt": "2026-11-21T20:00:00.000001Z",
        "finishedAt": "2026-11-21T20:00:00.000002Z",
        "output": {"stdout": "1\n", "stderr": "", "stdoutBytes": 2, "stderrBytes": 0, "truncated": False},
    }
    api.merge(CEX, name, {"status": base | status})


@dataclass
class Gateway:
    """The gateway under test."""

    api: FakeApiServer
    dependencies: Dependencies
    session: aiohttp.ClientSession
    url: str

    def request(self, method: str, path: str, *, key: str | None = KEY, **options: Any) -> Any:
        headers = {**({"Authorization": f"Bearer {key}"} if key else {}), **options.pop("headers", {})}
        return self.session.request(method, self.url + path, headers=headers, **options)

    async def ask(self, method: str, path: str, **options: Any) -> Answer:
        async with asyncio.timeout(DEADLINE), self.request(method, path, **options) as response:
            return Answer(response.status, response.headers, await response.text())

    async def read_metrics(self) -> str:
        """Return what the port of metrics serves."""
        transport = httpx.ASGITransport(build_metrics_app(self.dependencies))
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway:8085") as client:
            return (await client.get("/metrics")).text

    def stop_refills(self) -> None:
        """Stop the clock of the limits on requests in a minute: on a slow machine, they would refill meanwhile."""
        callers = self.dependencies.callers
        callers.peer_limiter.clock = callers.rate_limiter.clock = Clock()

    async def post(self, body: Any = None, query: str = "", **options: Any) -> Answer:
        given = {"code": "print(1)"} if body is None else body
        content = {"data": io.BytesIO(given)} if isinstance(given, bytes) else {"json": given}
        if isinstance(given, bytes):
            options["headers"] = {"Content-Type": "application/json", **options.get("headers", {})}
        return await self.ask("POST", "/v1/executions" + query, **content, **options)

    @property
    def executions(self) -> dict[str, Object]:
        return self.api.collections.get(CEX, {})

    def finish(self, name: str, phase: str = "Succeeded", **status: Any) -> None:
        """Write the status that the operator writes at the end."""
        finish(self.api, name, phase, **status)

    def finish_all(self, **status: Any) -> None:
        """Finish each execution as soon as it is created."""
        self.api.on_create = lambda collection, item: (
            self.finish(item["metadata"]["name"], **status) if collection == CEX else None
        )


async def listing(gateway: Gateway, field: str, *values: Any, query: str = "") -> list[Object]:
    """Wait until a list has these values of a field, newest first, and return it. Watches feed lists."""
    seen: list[Any] = []
    try:
        async with asyncio.timeout(DEADLINE):
            while True:
                items: list[Object] = (await gateway.ask("GET", f"/v1/executions{query}")).json["items"]
                seen = [item[field] for item in items]
                if seen == list(values):
                    return items
    except TimeoutError as error:
        raise AssertionError(f"the list{query} still has {seen}, not {values}") from error


@asynccontextmanager
async def serving(
    api: FakeApiServer, *, sandbox_port: int = 1, features: Collection[Feature] = FEATURES.values(), **changes: Any
) -> AsyncIterator[Gateway]:
    """Serve a gateway that is ready."""
    made = settings(**changes)
    async with (
        aiohttp.ClientSession(base_url=api.url) as kube_session,
        SupervisorClient.connect(keys=SandboxKeys(SANDBOX_KEY), port=sandbox_port) as supervisors,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
        asyncio.TaskGroup() as group,
    ):
        kube = KubeClient(
            session=kube_session, credentials=KubeCredentials(server=""), retry_delays=(0.001,), timeout_seconds=5
        )
        dependencies = Dependencies(made, kube=kube, supervisors=supervisors, features=features)
        following = [group.create_task(reflector.run()) for reflector in dependencies.extensions.reflectors.values()]
        following.append(group.create_task(dependencies.namespaces.run(made.mounted_namespaces)))
        following += [group.create_task(run()) for run in dependencies.extensions.tasks.values()]
        server = build_server(build_app(dependencies), port=0, keep_alive_seconds=75, shutdown_seconds=1)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            served = group.create_task(server.serve(sockets=[listener]))
            await until(lambda: not find_unsynced(dependencies.namespaces.reflectors))
            yield Gateway(api, dependencies, session, url)
            server.should_exit = server.force_exit = True
            await session.close()
            await served
            for task in following:
                task.cancel()


@pytest.fixture
async def api() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer().running() as server:
        server.put(SBP, pool("default", 60))
        server.put(SBP, pool("long"))
        server.put(SECRETS, keys_secret(**{"team-a": key_entry(KEY), "team-b": key_entry(OTHER_KEY, "others")}))
        yield server


@pytest.fixture
async def gateway(api: FakeApiServer) -> AsyncIterator[Gateway]:
    async with serving(api) as made:
        yield made


@pytest.fixture
async def broker(api: FakeApiServer) -> AsyncIterator[FakeBroker]:
    async with running_broker(api) as made:
        yield made


@pytest.fixture
async def gateway_with_broker(api: FakeApiServer, broker: FakeBroker) -> AsyncIterator[Gateway]:
    async with serving(api, broker_service="mcp-exec-broker") as made:
        yield made


@pytest.fixture
async def gateway_with_approver(api: FakeApiServer) -> AsyncIterator[Gateway]:
    """A gateway that has an approver, with the key BOSS."""
    api.put(SECRETS, keys_secret(**{"team-a": key_entry(KEY), "boss": {**key_entry(BOSS), "approver": True}}))
    async with serving(api) as made:
        yield made


@pytest.fixture
def command(
    gateway: Gateway, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, no_profile: Path
) -> Command:
    """`mcp-exec` at the gateway."""
    monkeypatch.setenv("MCP_EXEC_GATEWAY", gateway.url)
    monkeypatch.setenv("MCP_EXEC_API_KEY", KEY)
    return lambda *arguments: call(capsys, *arguments)
