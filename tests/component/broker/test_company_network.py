"""The broker in a company's network: certificates of the company's own authority, and a proxy that has to be used."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route
from tests.component.broker.conftest import SECRETS, TS, World, grant, running, secret
from tests.component.broker.files_client import FakeSandbox, files_grant
from tests.component.broker.servers import (
    BRIDGE,
    module,
    real_bridge,
    serving,
    serving_app,
    stdio_status,
    stdio_token,
    toolbox,
)
from tests.component.broker.test_process import MODULE, broker
from tests.component.broker.test_records import EXECUTION, build_client
from tests.support.api_server import FakeApiServer
from tests.support.certificates import certificates_for, server_tls
from tests.support.forward_proxy import PASSWORD, PROGRAM, REFUSED, ForwardProxy, running_proxy
from tests.support.ports import free_port
from tests.support.postgres import Postgres, find_programs
from tests.support.processes import SECONDS, started
from tests.support.relay import relaying
from tests.support.s3_server import running_s3
from tests.support.until import until
from yarl import URL

from mcp_exec_api.reasons.server import ServerReason
from mcp_exec_api.tool_server import Stdio
from mcp_exec_common.broker.records import RecordsError
from mcp_exec_common.kube.client import resource_path
from mcp_exec_operator.features.tools.manifests import BridgeImage, ServerIdentity, build_deployment
from mcp_exec_operator.features.tools.network import ServerNetwork
from mcp_exec_operator.settings import BundleSource

HOST = "localhost"
MCP = "mcp.company.example"
LOGIN = "login.company.example"
CONFIG_MAPS = resource_path("configmaps", namespace="agents")


@dataclass(frozen=True)
class Company:
    """An authority of a company, and the certificate of its servers."""

    folder: Path
    authority: str
    certificate: str

    @property
    def bundle(self) -> Path:
        return self.folder / "ca.crt"

    @asynccontextmanager
    async def tls(self, url: str, host: str = HOST) -> AsyncIterator[str]:
        """Serve a URL of this machine with TLS, and yield its URL with this host."""

        async def pass_on(data: bytes, is_answer: bool) -> bool:
            return True

        plain = URL(url)
        assert plain.port is not None
        async with relaying(plain.port, pass_on, tls=server_tls(self.certificate, self.folder)) as port:
            yield str(plain.with_scheme("https").with_host(host).with_port(port))


@pytest.fixture
def company(tmp_path: Path) -> Company:
    made = Company(tmp_path, *certificates_for(HOST, MCP, LOGIN))
    made.bundle.write_text(made.authority)
    return made


@pytest.mark.parametrize("trusted", [True, False], ids=["with the bundle", "without it"])
async def test_a_database_that_has_to_prove_itself_does_so_by_the_bundle(
    api: FakeApiServer, tmp_path: Path, company: Company, trusted: bool
) -> None:
    if find_programs() is None:
        pytest.skip("needs PostgreSQL of Debian: install the package postgresql")
    async with Postgres.running(certificate=company.certificate) as server:
        (url := tmp_path / "url").write_text(server.url.replace("127.0.0.1", HOST) + "?ssl=verify-full")
        bundle = {"ca_bundle": company.bundle} if trusted else {}
        async with running(api, tmp_path, records_database_file=url, **bundle) as world:
            if trusted:
                assert (await build_client(world).add({"executions": [EXECUTION]})).stored == 1
            else:
                with pytest.raises(RecordsError):
                    await build_client(world).add({"executions": [EXECUTION]})


async def test_a_bucket_proves_itself_by_the_bundle(api: FakeApiServer, tmp_path: Path, company: Company) -> None:
    with running_s3() as s3:
        async with company.tls(s3.url) as url:
            settings = s3.settings(tmp_path) | {"files_endpoint": url.rstrip("/"), "ca_bundle": company.bundle}
            async with running(api, tmp_path, **settings) as world:
                sandbox = FakeSandbox(world, files_grant())
                assert (await sandbox.save({"a.txt": b"one"}))["version"] == 1
                assert (await sandbox.fetch())[1] == {"a.txt": b"one"}


def name_bundle(world: World, name: str, **data: str) -> dict[str, Any]:
    """Create a ConfigMap, and return the field `tls` of ToolServers that name its key `ca.crt`."""
    world.api.put(CONFIG_MAPS, {"metadata": {"name": name}, "data": data})
    return {"caBundleRef": {"name": name, "key": "ca.crt"}}


async def test_a_server_is_verified_by_the_bundle_that_its_namespace_has(
    api: FakeApiServer, tmp_path: Path, company: Company
) -> None:
    broken = {
        "other-key": ({"other.crt": company.authority}, "BundleNotFound", "ConfigMap other-key has no key ca.crt"),
        "text": ({"ca.crt": "no PEM"}, "BundleUnreadable", "key ca.crt of ConfigMap text has no certificate in PEM"),
        "large": ({"ca.crt": company.authority + "#" * 2**17}, "BundleUnreadable", "has more than 131072 bytes"),
    }
    async with (
        running(api, tmp_path, secret_seconds=0) as world,
        serving(toolbox()) as box,
        company.tls(box.url) as url,
    ):
        for name, (data, _, _) in broken.items():
            world.add(name, url=url, tls=name_bundle(world, name, **data))
        world.add("absent", url=url, tls={"caBundleRef": {"name": "absent", "key": "ca.crt"}})
        world.add("untrusted", url=url)
        expected = {name: (reason, said) for name, (_, reason, said) in broken.items()}
        expected["absent"] = "BundleNotFound", "there is no ConfigMap absent"
        expected["untrusted"] = "TLSFailed", "is refused: "
        for name, (reason, said) in expected.items():
            await until(lambda name=name: world.status(name).get("reason"))
            assert (world.status(name)["reason"], said in world.status(name)["message"]) == (reason, True), name
            (available,) = (each for each in world.status(name)["conditions"] if each["type"] == "Available")
            assert (available["status"], available["reason"]) == ("False", reason)
            assert ServerReason(reason).remedy
        assert box.requests == []
        world.add("trusted", url=url, tls=name_bundle(world, "company", **{"ca.crt": company.authority}))
        await world.listed("trusted")
        assert (await world.call("trusted.add", a=1, b=2))["value"] == 3


async def test_the_bundle_of_the_installation_is_trusted_for_all_servers(
    api: FakeApiServer, tmp_path: Path, company: Company
) -> None:
    async with (
        running(api, tmp_path, ca_bundle=company.bundle) as world,
        serving(toolbox()) as box,
        company.tls(box.url) as url,
    ):
        world.add("box", url=url)
        await world.listed("box")
        assert (await world.call("box.add", a=1, b=2))["value"] == 3


@pytest.fixture
async def proxy() -> AsyncIterator[ForwardProxy]:
    if not PROGRAM.exists():
        pytest.skip("needs Squid of Debian: install the package squid")
    names = {MCP: "127.0.0.1", LOGIN: "127.0.0.1", "inside.company.example": REFUSED}
    async with running_proxy(names) as made:
        yield made


def write_proxies(folder: Path, url: str) -> Path:
    """Write the Secret with the URLs of proxies as the kubelet mounts it."""
    (made := folder / "proxy").mkdir(exist_ok=True)
    for name in ("http", "https"):
        (made / name).write_text(url + "\n")
    return made


@asynccontextmanager
async def token_endpoint(api: FakeApiServer, company: Company) -> AsyncIterator[dict[str, Any]]:
    """Serve a token endpoint whose name only the proxy resolves; yield the field `oauth`."""

    async def token(request: Request) -> JSONResponse:
        assert "proxy-authorization" not in request.headers
        return JSONResponse({"access_token": "token-of-the-company", "token_type": "Bearer"})

    api.put(SECRETS, secret("client", id="me", secret="client-secret-0123456789"))
    pair = {name: {"name": "client", "key": key} for name, key in (("clientId", "id"), ("clientSecret", "secret"))}
    async with (
        serving_app(Starlette(routes=[Route("/token", token, methods=["POST"])])) as url,
        company.tls(f"{url}/token", LOGIN) as outside,
    ):
        yield {"tokenUrl": outside, **pair}


async def test_a_process_reaches_servers_and_token_endpoints_by_the_proxy_and_its_api_server_without_it(
    api: FakeApiServer, tmp_path: Path, company: Company, proxy: ForwardProxy
) -> None:
    env = broker(
        tmp_path,
        api,
        MCP_EXEC_CA_BUNDLE=str(company.bundle),
        MCP_EXEC_PROXY_FOLDER=str(write_proxies(tmp_path, proxy.url_with_credentials)),
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), f"http://127.0.0.1:{free_port()}"),
    )
    async with (
        serving(toolbox(), host="0.0.0.0") as box,
        company.tls(box.url, MCP) as url,
        token_endpoint(api, company) as oauth,
        aiohttp.ClientSession() as session,
    ):
        targets = {f"{each.host}:{each.port}" for each in (URL(url), URL(oauth["tokenUrl"]))}
        async with started(*MODULE, env=env) as process, asyncio.timeout(SECONDS):
            await process.says("ready")
            api.put(TS, {"metadata": {"name": "box", "generation": 1}, "spec": {"url": url, "oauth": oauth}})
            await until(lambda: (api.collections[TS]["box"].get("status") or {}).get("available"))
            body = {"id": "1", "tool": "box.add", "arguments": {"a": 1, "b": 2}}
            async with session.post(
                f"http://127.0.0.1:{env['MCP_EXEC_PORT']}/v1/calls",
                json=body,
                headers={"Authorization": f"Bearer {grant()}"},
            ) as response:
                assert json.loads(await response.read())["value"] == 3
        await until(lambda: proxy.list_targets() >= targets)
        assert proxy.list_targets() == targets
        assert set(box.header("authorization")) == {"Bearer token-of-the-company"}
        assert box.header("proxy-authorization") == []


async def test_a_proxy_that_does_not_take_a_request_is_the_reason_without_its_credentials(
    api: FakeApiServer, tmp_path: Path, proxy: ForwardProxy
) -> None:
    wrong = proxy.url_with_credentials.replace("%401", "%402")
    nowhere = f"127.0.0.1:{free_port()}"
    unknown = f"the proxy at 127.0.0.1:{proxy.port} answers 407: it requires other credentials"
    for url, address, said in (
        (
            wrong,
            f"https://{MCP}/mcp",
            f"the proxy at 127.0.0.1:{proxy.port} answers 407: it requires other credentials",
        ),
        (wrong, f"http://{MCP}/mcp", unknown),
        (
            proxy.url_with_credentials,
            "https://inside.company.example/mcp",
            f"the proxy at 127.0.0.1:{proxy.port} answers 403: it refuses the address",
        ),
        (f"http://me:secret-of-mine@{nowhere}", f"https://{MCP}/mcp", f"no connection to the proxy at {nowhere}"),
    ):
        async with running(api, tmp_path, proxy_folder=write_proxies(tmp_path, url)) as world:
            world.add("box", url=address)
            await until(lambda: world.status("box").get("reason") == "ProxyFailed")
            assert world.status("box")["message"] == said
            assert not {PASSWORD, "secret-of-mine", "%40"} & set(json.dumps(world.status("box")).split())
            api.collections[TS].clear()


async def test_what_the_broker_refuses_itself_never_reaches_the_proxy(
    api: FakeApiServer, tmp_path: Path, proxy: ForwardProxy
) -> None:
    addresses = {
        "link-local": "http://169.254.169.254/latest",
        "mapped": "http://[::ffff:169.254.169.254]/latest",
        "google": "https://METADATA.google.internal./mcp",
        "loopback": f"http://127.0.0.1:{proxy.port}/mcp",
        "hexadecimal": "http://0x7f.1/mcp",
        "local": f"http://localhost:{proxy.port}/mcp",
    }
    folder = write_proxies(tmp_path, proxy.url_with_credentials)
    async with running(api, tmp_path, proxy_folder=folder, allowed_addresses=()) as world:
        api.put(SECRETS, secret("client", id="me", secret="client-secret-0123456789"))
        pair = {name: {"name": "client", "key": key} for name, key in (("clientId", "id"), ("clientSecret", "secret"))}
        for name, address in addresses.items():
            world.add(name, url=address)
        world.add("token", url=f"https://{MCP}/mcp", oauth={"tokenUrl": "http://169.254.169.254/token", **pair})
        for name in (*addresses, "token"):
            await until(lambda name=name: world.status(name).get("reason"))
            assert world.status(name)["reason"] == "AddressRefused", world.status(name)
    assert [each for each in proxy.list_requests() if not each.startswith("-")] == []


async def test_the_clusters_own_names_and_networks_are_reached_without_the_proxy(
    api: FakeApiServer, tmp_path: Path
) -> None:
    nowhere = write_proxies(tmp_path, f"http://127.0.0.1:{free_port()}")
    settings = {"proxy_folder": nowhere, "proxy_no": "127.0.0.0/8, .Corp.example", "cluster_domain": "k8s.company"}
    names = ("wiki", "wiki.agents.svc", "wiki.agents.svc.k8s.company", "WIKI.corp.example.")
    async with running(api, tmp_path, **settings) as world, serving(toolbox()) as box:
        world.add("box", url=box.url)
        world.add("outside", url="http://wiki.agents.svc.cluster.local/mcp")
        for number, name in enumerate(names):
            world.add(f"name-{number}", url=f"http://{name}/mcp")
        await world.listed("box")
        for number in range(len(names)):
            await until(lambda number=number: world.status(f"name-{number}").get("reason"))
            assert world.status(f"name-{number}")["reason"] == "NameNotResolved"
        await until(lambda: world.status("outside").get("reason") == "ProxyFailed")


def build_environment(network: ServerNetwork, folder: Path, secrets: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the operator gives a stdio server, with the folder of the bridge."""
    identity = ServerIdentity(namespace="agents", name="fetching", uid="u")
    deployment = build_deployment(
        server=identity,
        stdio=Stdio(image="i", command=["c"]),
        bridge=BridgeImage(image="i"),
        secrets="",
        network=network,
    )
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    found = {}
    for each in container["env"]:
        reference = each.get("valueFrom", {}).get("secretKeyRef")
        found[each["name"]] = secrets[reference["key"]] if reference else each["value"]
    mounted = {name: text.replace("/mcp-exec/", f"{folder}/") for name, text in found.items()}
    return {name: text for name, text in mounted.items() if not name.startswith("MCP_EXEC_")}


async def test_a_stdio_server_reaches_the_world_by_the_proxy_and_the_cluster_without_it(
    world: World, tmp_path: Path, company: Company, proxy: ForwardProxy
) -> None:
    install = await asyncio.create_subprocess_exec(
        *(sys.executable, str(BRIDGE), "install", str(tmp_path / "bridge"), "--ca-bundle", str(company.bundle))
    )
    assert await install.wait() == 0
    network = ServerNetwork(
        proxy_secret="proxy",
        direct_hosts=("localhost", ".svc", ".cluster.local"),
        bundle=BundleSource(kind="ConfigMap", name="company", key="ca.crt"),
    )
    secrets = dict.fromkeys(("http", "https"), proxy.url_with_credentials)
    variables = build_environment(network, tmp_path / "bridge", secrets)

    async def answer(request: Request) -> PlainTextResponse:
        return PlainTextResponse(f"answered as {request.headers['host'].partition(':')[0]}")

    command = module("tests.component.broker.fetching_server")
    async with (
        serving_app(Starlette(routes=[Route("/", answer)])) as plain,
        company.tls(plain, MCP) as outside,
        company.tls(plain) as inside,
        real_bridge(
            command, token=stdio_token("fetching"), variables=variables | {"PYTHONPATH": str(Path.cwd())}
        ) as address,
    ):
        world.add("fetching", stdio={"image": "i", "command": command}, status=stdio_status(address))
        await world.listed("fetching")
        for url, host in ((outside, MCP), (inside, HOST)):
            assert (await world.call("fetching.fetch", url=url))["value"] == f"answered as {host}"
        await until(lambda: proxy.list_targets())
        assert proxy.list_targets() == {f"{MCP}:{URL(outside).port}"}


async def test_a_stdio_server_without_the_bundle_of_the_release_says_what_its_namespace_lacks(tmp_path: Path) -> None:
    place = "ConfigMap company, key ca.crt"
    install = await asyncio.create_subprocess_exec(
        *(sys.executable, str(BRIDGE), "install", str(tmp_path / "bridge")),
        *("--ca-bundle", str(tmp_path / "absent"), "--ca-bundle-of", place),
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await install.communicate()
    assert install.returncode == 1
    assert said.decode().strip() == f"this namespace has no {place}: create it, as the release's caBundle names it"
