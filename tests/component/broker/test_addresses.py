"""A ToolServer that leads to the broker itself, to a metadata service or to the API server gets no connection."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.component.broker.conftest import SECRETS, World, running, secret
from tests.component.broker.servers import serving, toolbox
from tests.support.api_server import FakeApiServer
from tests.support.until import until


class Internal:
    """A service that only the broker can reach, and its number of connections."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Internal"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.close()


@pytest.fixture
async def internal() -> AsyncIterator[Internal]:
    async with Internal().running() as service:
        yield service


@pytest.fixture
async def strict(api: FakeApiServer, tmp_path: Path) -> AsyncIterator[World]:
    """Run a broker with its default addresses."""
    async with running(api, tmp_path, allowed_addresses=()) as made:
        yield made


async def read_reason(world: World, name: str) -> tuple[str, str]:
    await until(lambda: world.status(name).get("reason"))
    return world.status(name)["reason"], world.status(name)["message"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]"])
async def test_a_url_of_the_broker_itself_is_refused(strict: World, internal: Internal, host: str) -> None:
    strict.add("self", url=f"http://{host}:{internal.port}/mcp")
    reason, message = await read_reason(strict, "self")
    assert (reason, "the broker refused the connection at" in message) == ("AddressRefused", True)
    assert internal.connections == 0


async def test_a_metadata_address_is_refused(strict: World) -> None:
    strict.add("metadata", url="http://169.254.169.254/mcp")
    reason, message = await read_reason(strict, "metadata")
    assert (reason, message.endswith("169.254.169.254:80: the address is link-local")) == ("AddressRefused", True)
    failed = await strict.call("metadata.read")
    assert (failed["reason"], failed["cause"]) == ("ServerUnavailable", "AddressRefused")


async def test_a_name_is_refused_by_the_address_to_which_it_resolves(
    strict: World, internal: Internal, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    resolve = loop.getaddrinfo

    async def rebind(host: Any, port: Any, *arguments: Any, **options: Any) -> Any:
        if host == "rebound.example":
            return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", port))]
        return await resolve(host, port, *arguments, **options)

    monkeypatch.setattr(loop, "getaddrinfo", rebind)
    strict.add("rebound", url=f"http://rebound.example:{internal.port}/mcp")
    assert (await read_reason(strict, "rebound"))[0] == "AddressRefused"
    assert internal.connections == 0


async def test_a_token_endpoint_is_checked_too(strict: World, internal: Internal) -> None:
    strict.api.put(SECRETS, secret("client", id="x", secret="y"))
    names = {"clientId": {"name": "client", "key": "id"}, "clientSecret": {"name": "client", "key": "secret"}}
    oauth = {"tokenUrl": f"http://127.0.0.1:{internal.port}/token", **names}
    strict.add("box", url="http://mcp.invalid/mcp", oauth=oauth)
    reason, message = await read_reason(strict, "box")
    assert (reason, "the token endpoint cannot be reached" in message) == ("AddressRefused", True)
    assert internal.connections == 0


async def test_a_listed_address_is_used(api: FakeApiServer, tmp_path: Path) -> None:
    async with running(api, tmp_path, allowed_addresses="127.0.0.1/32") as world, serving(toolbox()) as box:
        world.add("box", url=box.url)
        await world.listed("box")
        assert (await world.call("box.add", a=2, b=3))["value"] == 5
