"""Slow and silent clients on the ports of operator, gateway and broker, each as a process with short deadlines.

Each port cuts them off within its deadlines, and serves other clients meanwhile.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from tests.component.broker.conftest import grant
from tests.component.broker.test_process import broker
from tests.component.gateway.conftest import KEY
from tests.component.gateway.test_process import gateway
from tests.support.api_server import FakeApiServer, Fault
from tests.support.constants import DEADLINE
from tests.support.ports import free_port
from tests.support.processes import environment, started
from tests.support.slow_clients import ask_without_reading, connected, silent
from tests.support.world import KEY_SECRET, SECRETS, SYSTEM, sandbox_key_secret

from mcp_exec_broker.settings import Settings as BrokerSettings
from mcp_exec_common.process.connections import ConnectionLimits
from mcp_exec_common.process.settings import ProcessSettings
from mcp_exec_gateway.settings import Settings as GatewaySettings
from mcp_exec_operator.settings import Settings as OperatorSettings

LIMITS = {
    "MCP_EXEC_HEAD_SECONDS": "0.5",
    "MCP_EXEC_BODY_SECONDS": "0.5",
    "MCP_EXEC_WRITE_SECONDS": "0.5",
    "MCP_EXEC_PORT_CONNECTIONS": "24",
    "MCP_EXEC_PEER_CONNECTIONS": "16",
}
MOST_PER_PEER = 16


def operator(folder: Path, api: FakeApiServer) -> dict[str, str]:
    """An operator that waits for its API server, which has given it the sandbox key: its port serves already."""
    api.put(SECRETS, sandbox_key_secret())
    api.faults += [Fault("GET", "/apis/mcp-exec.dev/v1beta1", 503) for _ in range(500)]
    return environment(
        folder,
        api.url,
        MCP_EXEC_RELEASE_NAMESPACE=SYSTEM,
        MCP_EXEC_SANDBOX_KEY_SECRET=KEY_SECRET,
        MCP_EXEC_PORT=str(free_port()),
    )


@dataclass(frozen=True)
class Process:
    """A process and its ports."""

    module: str
    environment: Callable[[Path, FakeApiServer], dict[str, str]]
    ports: tuple["Port", ...]


@dataclass(frozen=True)
class Port:
    """What a port answers, and the setting that chooses it."""

    variable: str = "MCP_EXEC_PORT"
    path: str = "/healthz"
    status: int = 200
    post: str = "/healthz"
    """Path of a request whose body the process reads."""
    credential: str = ""


PROCESSES = {
    "operator": Process("mcp_exec_operator", operator, (Port(),)),
    "gateway": Process("mcp_exec_gateway", gateway, (Port(post="/v1/executions", credential=KEY),)),
    "broker": Process(
        "mcp_exec_broker",
        broker,
        (
            Port(path="/v1/calls", status=405, post="/v1/calls", credential=grant()),
            Port(variable="MCP_EXEC_CONTROL_PORT"),
        ),
    ),
}


@dataclass(frozen=True)
class Running:
    """A port that listens."""

    kind: Port
    port: int

    @property
    def get(self) -> bytes:
        """A request that is answered at once."""
        return f"GET {self.kind.path} HTTP/1.1\r\nhost: it\r\n\r\n".encode()

    @property
    def post(self) -> bytes:
        """The head of a request with a body of 1,000 bytes."""
        return (
            f"POST {self.kind.post} HTTP/1.1\r\nhost: it\r\nauthorization: Bearer {self.kind.credential}\r\n"
            "content-type: application/json\r\ncontent-length: 1000\r\n\r\n"
        ).encode()

    async def serves(self) -> bool:
        """Return whether a new client is served."""
        async with asyncio.timeout(DEADLINE), aiohttp.ClientSession() as session:
            try:
                async with session.get(f"http://127.0.0.1:{self.port}{self.kind.path}") as response:
                    await response.read()
                    return response.status == self.kind.status
            except aiohttp.ClientConnectionError:
                return False


@asynccontextmanager
async def listening(process: Process, api: FakeApiServer, folder: Path) -> AsyncIterator[list[Running]]:
    """Start a process and yield its ports once they serve."""
    env = process.environment(folder, api) | LIMITS
    ports = [Running(port, int(env[port.variable])) for port in process.ports]
    async with started("-m", process.module, env=env) as child:
        if process.module == "mcp_exec_operator":
            await child.says("does not respond yet")
        else:
            await child.says("ready")
        yield ports


@pytest.mark.parametrize("process", PROCESSES.values(), ids=list(PROCESSES))
async def test_slow_clients_are_cut_off_and_others_are_served(
    process: Process, api: FakeApiServer, tmp_path: Path
) -> None:
    async with listening(process, api, tmp_path) as ports:
        await asyncio.gather(*map(cut_off, ports))


async def cut_off(running: Running) -> None:
    """Check that a port cuts off slow clients of each kind."""
    assert await running.serves()
    async with silent(running.port, MOST_PER_PEER) as quiet:
        assert await running.serves()  # the one that has waited longest makes room
        for client in quiet:
            assert await client.until_closed() == b""
    async with (
        connected(running.port) as dripping,
        connected(running.port) as stopping,
        connected(running.port) as breaking,
    ):
        await stopping.send(running.post + b"{")
        _, answer, _, _ = await asyncio.gather(
            dripping.drip(running.get[:-2] + b"x: " + b"y" * 1000),
            stopping.until_closed(),
            ask_without_reading(running.port, running.get * 8),
            breaking.drip(b"\r\n" * 500),
        )
        if running.kind.credential:
            assert answer.startswith(b"HTTP/1.1 408 ") or answer.startswith(b"HTTP/1.1 401 ")
    assert await running.serves()


def test_the_deadlines_are_shorter_than_any_client_needs_and_a_peer_has_a_share_of_the_connections() -> None:
    def limits(settings: type[ProcessSettings]) -> ConnectionLimits:
        given = {"namespaces": ("agents",), "sandbox_key_folder": Path("key"), "release_namespace": SYSTEM}
        given["sandbox_key_secret"] = KEY_SECRET
        known = {name: value for name, value in given.items() if name in settings.model_fields}
        return settings(**known).connection_limits

    for settings in (BrokerSettings, GatewaySettings, OperatorSettings):
        found = limits(settings)
        assert (found.head_seconds, found.body_seconds, found.write_seconds) == (10, 40, 60)
        assert found.max_per_peer <= found.max_connections // 2
    gateway = GatewaySettings.model_fields
    assert limits(GatewaySettings).max_connections > gateway["max_waits"].default + gateway["max_streams"].default
