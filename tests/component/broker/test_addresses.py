"""A ToolServer that leads to a part of the release, to a metadata service or to the API server gets no connection."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.component.broker.conftest import SECRETS, Object, World, running, secret
from tests.component.broker.servers import serving, stdio_status, toolbox
from tests.support.api_server import FakeApiServer, Fault
from tests.support.until import until

from mcp_exec_broker.core.upstream import own_addresses
from mcp_exec_common.kube.client import resource_path

RELEASE = "mcp-exec-system"


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


OF_A_PART = "the address is that of a part of mcp-exec"
LABELS = {"app.kubernetes.io/name": "mcp-exec", "app.kubernetes.io/instance": "mcp-exec"}
POD: Object = {"status": {"podIP": "10.9.0.2", "podIPs": [{"ip": "10.9.0.2"}, {"ip": "fd00:9::2"}]}}
SERVICE: Object = {
    "spec": {"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9", "fd00:96::9"], "externalIPs": ["192.0.2.9"]},
    "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.9"}, {"hostname": "lb.example"}]}},
}


@pytest.fixture
async def placed(api: FakeApiServer, tmp_path: Path) -> AsyncIterator[World]:
    """Run a broker that knows its own addresses, next to a gateway and its Service."""
    api.put(resource_path("pods", namespace=RELEASE), {"metadata": {"name": "gateway-1", "labels": LABELS}, **POD})
    services = resource_path("services", namespace=RELEASE)
    api.put(services, {"metadata": {"name": "gateway", "labels": LABELS}, **SERVICE})
    api.put(services, {"metadata": {"name": "headless", "labels": LABELS}, "spec": {"clusterIP": "None"}})
    async with running(api, tmp_path, allowed_addresses=(), pod_ips="10.9.0.1,fd00:9::1") as made:
        yield made


@pytest.mark.parametrize(
    "host",
    [
        *("10.9.0.1", "[fd00:9::1]", "[64:ff9b::a09:1]", "10.9.0.2", "[fd00:9::2]"),
        *("10.96.0.9", "[fd00:96::9]", "192.0.2.9", "198.51.100.9"),
    ],
)
@pytest.mark.parametrize("place", ["url", "token endpoint"])
async def test_an_address_of_the_release_is_refused_on_every_port(placed: World, host: str, place: str) -> None:
    placed.api.put(SECRETS, secret("client", id="x", secret="y"))
    names = {"clientId": {"name": "client", "key": "id"}, "clientSecret": {"name": "client", "key": "secret"}}
    for port in (80, 8084):
        url = f"http://{host}:{port}/v1/audit"
        spec = {"url": url} if place == "url" else {"url": "http://10.0.0.1/", "oauth": {"tokenUrl": url, **names}}
        placed.add(f"own-{port}", **spec)
        reason, message = await read_reason(placed, f"own-{port}")
        assert (reason, OF_A_PART in message) == ("AddressRefused", True)


async def test_a_part_that_starts_later_is_refused_too(placed: World) -> None:
    pod = {"metadata": {"name": "gateway-2", "labels": LABELS}, "status": {"podIP": "10.9.0.3"}}
    placed.api.put(resource_path("pods", namespace=RELEASE), pod)
    check = placed.broker.address_check
    await until(lambda: check.find_problem("10.9.0.3"), what="the watch has brought the pod")
    placed.add("later", url="http://10.9.0.3:8080/mcp")
    assert (await read_reason(placed, "later"))[0] == "AddressRefused"
    placed.api.remove(resource_path("pods", namespace=RELEASE), "gateway-2")
    await until(lambda: not check.find_problem("10.9.0.3"))


async def test_the_pod_of_a_stdio_server_is_reached_as_that_server_alone(placed: World) -> None:
    placed.add("time", stdio={"image": "i", "command": ["c"]}, status=stdio_status("10.9.1.1:8083"))
    await until(lambda: placed.broker.address_check.find_problem("10.9.1.1"))
    placed.add("thief", url="http://10.9.1.1:8083/mcp")
    reason, message = await read_reason(placed, "thief")
    assert (reason, "that of a stdio server" in message) == ("AddressRefused", True)


async def test_a_broker_that_may_not_list_the_release_refuses_its_own_pod(
    api: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_addresses, "_SYNC_SECONDS", 0.05)
    api.faults.extend(Fault("GET", f"/{RELEASE}/", 403, "no right") for _ in range(100))
    async with running(api, tmp_path, allowed_addresses=(), pod_ips="10.9.0.1") as world:
        world.add("self", url="http://10.9.0.1:8084/v1/audit")
        assert (await read_reason(world, "self"))[0] == "AddressRefused"


async def test_a_listed_address_is_used(api: FakeApiServer, tmp_path: Path) -> None:
    async with running(api, tmp_path, allowed_addresses="127.0.0.1/32") as world, serving(toolbox()) as box:
        world.add("box", url=box.url)
        await world.listed("box")
        assert (await world.call("box.add", a=2, b=3))["value"] == 5
