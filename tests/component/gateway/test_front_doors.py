"""The gateway behind nginx and Envoy, with the configurations of docs/platform/expose.md, and as its own front door."""

import asyncio
import json
import os
import random
import re
import signal
import ssl
import subprocess
import tarfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any, Final, get_args

import httpx
import pytest
import pytest_asyncio
from tests.component.gateway.conftest import CEX, KEY, PODS, SBP, SECRETS, finish, key_entry, keys_secret, pool
from tests.component.gateway.mcp_client import REVISIONS, connecting
from tests.component.gateway.test_process import MODULE, gateway
from tests.support.api_server import FakeApiServer
from tests.support.broker import FakeBroker, running_broker
from tests.support.certificates import certificates_for
from tests.support.constants import DEADLINE, SANDBOX_KEY
from tests.support.front_doors import PAGE, SERVICE, Changes, Kind, running_door, write_certificate
from tests.support.pace import paced
from tests.support.processes import Process, started
from tests.support.supervisor import FakeSupervisor
from tests.support.until import until

from mcp_exec_api.constants import SUPERVISOR_PORT
from mcp_exec_api.files import Owner
from mcp_exec_gateway.app import KEEP_ALIVE_SECONDS
from mcp_exec_gateway.settings import Settings

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).parents[3]
MIB = 2**20
PAGE_ORIGIN = "https://ide.example"
ANONYMOUS = 20
"""Requests without credentials that one address may send in a minute."""
MAX_FILE = 4 * MIB
"""Bytes of a file that the gateway accepts."""
KINDS: tuple[Kind, ...] = get_args(Kind)
BEHIND: Final[dict[str, tuple[Kind | None, bool]]] = {
    "direct": (None, True),
    **{f"{kind}{suffix}": (kind, secured) for kind in KINDS for suffix, secured in (("", False), ("-tls", True))},
}
"""What is in front of the gateway, and whether the gateway serves TLS."""
WORKSPACE = "/v1/workspaces/sales"
OWNER = Owner(namespace="agents", caller="team-a").digest


@dataclass(kw_only=True)
class Town:
    """A cluster of fakes, a gateway with TLS, one without, and the front doors that have been asked for."""

    api: FakeApiServer
    broker: FakeBroker
    folder: Path
    programs: str
    """Folder of nginx and Envoy, if PATH has none."""
    authority: str
    """Certificate of the authority that issued those of the gateway and of front doors."""
    certificate: str
    gateways: dict[bool, str]
    """Address of each gateway with its port, by whether it serves TLS."""
    stack: AsyncExitStack
    urls: dict[str, str]

    async def open(self, name: str) -> str:
        """Return the address of a front door, which runs from the first time on."""
        if name not in self.urls:
            kind, secured = BEHIND[name]
            assert kind is not None
            self.urls[name] = await self.stack.enter_async_context(
                self.running(kind, gateways=[self.gateways[secured]], secured=secured)
            )
        return self.urls[name]

    @asynccontextmanager
    async def running(
        self, kind: Kind, *, gateways: Sequence[str], secured: bool = False, changes: Changes = ()
    ) -> AsyncIterator[str]:
        """Run a front door with changes of its configuration, and return its address."""
        made = running_door(
            kind,
            self.folder / f"{kind}{next(_numbers)}",
            gateways=gateways,
            certificate=self.certificate,
            authority=self.authority if secured else None,
            changes=changes,
            programs=self.programs,
        )
        door = await asyncio.to_thread(made.__enter__)
        try:
            yield door.url
        finally:
            await asyncio.to_thread(made.__exit__, None, None, None)


_numbers = count()


def list_names(api: FakeApiServer) -> set[str]:
    """Return the names of all executions."""
    return set(api.collections.get(CEX, {}))


def visit(
    town: Town, url: str, *, address: str = "127.0.0.1", key: str | None = KEY, http2: bool = True
) -> httpx.AsyncClient:
    """Build a client at an address of this machine, which speaks HTTP/2 if the server does."""
    transport = httpx.AsyncHTTPTransport(
        verify=ssl.create_default_context(cadata=town.authority), http2=http2, local_address=address
    )
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.AsyncClient(base_url=url, transport=transport, headers=headers, timeout=DEADLINE)


@dataclass(kw_only=True)
class Door:
    """A front door, as a client sees it."""

    town: Town
    name: str
    url: str
    client: httpx.AsyncClient

    async def submit(self, **body: Any) -> str:
        """Create an execution without waiting for it."""
        response = await self.client.post("/v1/executions?wait=0", json={"code": "1", **body})
        assert response.status_code == 202, response.text
        return str(response.json()["name"])

    def spec(self, name: str) -> Any:
        return self.town.api.collections[CEX][name]["spec"]


@dataclass(kw_only=True)
class Pod:
    """A pod whose supervisor the gateway reaches."""

    api: FakeApiServer
    name: str
    supervisor: FakeSupervisor

    def bind(self, execution: str) -> None:
        """Let an execution run in the pod."""
        made = self.api.merge(CEX, execution, {"status": {"phase": "Running", "podName": self.name}})
        self.supervisor.id = made["metadata"]["uid"]
        self.supervisor.say("status", phase="Running")


@pytest.fixture(scope="module")
def programs() -> str:
    """The folder of nginx and Envoy."""
    command = [ROOT / "hack/tools", "nginx", "envoy"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=paced(600), check=False)
    if done.returncode:
        pytest.skip(f"hack/tools: {done.stderr.splitlines()[-1]}")
    return done.stdout.strip()


@asynccontextmanager
async def running_gateway(folder: Path, api: FakeApiServer, **changes: str) -> AsyncIterator[tuple[Process, str]]:
    """Run a gateway that is ready, and return it with its address."""
    folder.mkdir()  # noqa: ASYNC240 - once
    env = gateway(
        folder,
        api,
        MCP_EXEC_BROKER_SERVICE="mcp-exec-broker",
        MCP_EXEC_TRUSTED_PROXIES="127.0.0.1/32",
        MCP_EXEC_ALLOWED_ORIGINS=PAGE_ORIGIN,
        MCP_EXEC_MAX_UPLOAD_BYTES=str(MAX_FILE),
        MCP_EXEC_ANONYMOUS_REQUESTS_PER_MINUTE=str(ANONYMOUS),
        **changes,
    )
    async with started(*MODULE, env=env) as running:
        await running.says("ready")
        yield running, f"127.0.0.1:{env['MCP_EXEC_PORT']}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def town(programs: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Town]:
    """A town for all tests of the module, because processes take long to start. Each test has executions of its own."""
    folder = tmp_path_factory.mktemp("town")
    authority, certificate = certificates_for("127.0.0.1", SERVICE)
    write_certificate(folder / "tls", certificate)
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(FakeApiServer().running())
        api.put(SBP, pool("default", 60))
        api.put(SECRETS, keys_secret(**{"team-a": key_entry(KEY)}))
        broker = await stack.enter_async_context(running_broker(api))
        broker.files.max_file_bytes = 16 * MIB
        settings = {False: {}, True: {"MCP_EXEC_TLS_FOLDER": str(folder / "tls")}}
        gateways = {}
        for secured, changes in settings.items():
            made = running_gateway(folder / f"gateway-{secured}", api, **changes)
            _, gateways[secured] = await stack.enter_async_context(made)
        yield Town(
            api=api, broker=broker, folder=folder, programs=programs, authority=authority, certificate=certificate,
            gateways=gateways, stack=stack, urls={"direct": f"https://{gateways[True]}"},
        )  # fmt: skip


@pytest_asyncio.fixture(loop_scope="module", params=BEHIND)
async def door(request: pytest.FixtureRequest, town: Town) -> AsyncIterator[Door]:
    url = await town.open(request.param)
    async with visit(town, url) as client:
        yield Door(town=town, name=request.param, url=url, client=client)


@pytest_asyncio.fixture(loop_scope="module")
async def pod(town: Town) -> AsyncIterator[Pod]:
    """A pod with an address of its own: the port of supervisors is the same everywhere."""
    address = f"127.{random.randrange(1, 255)}.{random.randrange(255)}.{random.randrange(1, 255)}"
    name = f"default-{address.replace('.', '-')}"
    async with FakeSupervisor(key=SANDBOX_KEY, namespace="agents", pod=name).running(
        host=address, port=SUPERVISOR_PORT
    ) as supervisor:
        town.api.put(PODS, {"metadata": {"name": name}, "status": {"podIP": address}})
        yield Pod(api=town.api, name=name, supervisor=supervisor)


async def next_event(lines: AsyncIterator[str], kind: str) -> dict[str, Any]:
    """Return the next event of a kind."""
    event: dict[str, Any] = {}
    async with asyncio.timeout(DEADLINE):
        async for line in lines:
            name, _, value = line.partition(": ")
            if name == "id":
                event["id"] = value
            elif name == "data":
                event |= json.loads(value)
                if event["type"] == kind:
                    return event
    raise AssertionError(f"the stream ended without {kind}")


async def test_events_arrive_when_they_happen_and_are_resumed_by_their_ids(door: Door, pod: Pod) -> None:
    name = await door.submit()
    pod.bind(name)
    path, seen = f"/v1/executions/{name}/events", []
    async with door.client.stream("GET", path) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        lines = response.aiter_lines()
        for number in range(3):
            pod.supervisor.say("stdout", text=f"{number}\n")
            seen.append(await next_event(lines, "stdout"))
    assert [event["text"] for event in seen] == ["0\n", "1\n", "2\n"]
    async with door.client.stream("GET", path, headers={"Last-Event-ID": seen[1]["id"]}) as response:
        assert (await next_event(response.aiter_lines(), "stdout"))["text"] == "2\n"


@pytest.mark.parametrize("revision", REVISIONS)
async def test_an_mcp_client_reads_tools_progress_and_results(door: Door, pod: Pod, revision: str) -> None:
    api, progress = door.town.api, asyncio.Event()

    async def note(*_: Any) -> None:
        progress.set()

    before = list_names(api)
    verify = ssl.create_default_context(cadata=door.town.authority)
    async with asyncio.timeout(DEADLINE), connecting(door.url, revision, verify=verify) as client:
        assert "run_code" in [tool.name for tool in (await client.list_tools()).tools]
        calling = asyncio.create_task(client.call_tool("run_code", {"code": "1"}, progress_callback=note))
        (name,) = await until(lambda: list_names(api) - before)
        pod.bind(name)
        pod.supervisor.say("stdout", text="one\n")
        await progress.wait()
        finish(api, name)
        result = await calling
    assert (result.is_error, result.structured_content["phase"]) == (False, "Succeeded")


async def test_clients_speak_http_2_with_a_front_door(door: Door) -> None:
    response = await door.client.get("/v1/executions")
    assert (response.status_code, response.http_version) == (200, "HTTP/1.1" if door.name == "direct" else "HTTP/2")


async def test_files_larger_than_bodies_of_nginx_pass_with_their_paths_and_conditions(door: Door) -> None:
    content = os.urandom(3 * MIB)
    path = f"data/{door.name} ü%2F b%.bin"
    url = f"{WORKSPACE}/files/data/{door.name}%20%C3%BC%252F%20b%25.bin"
    written = await door.client.put(url, content=content)
    assert written.status_code == 200, written.text
    assert door.town.broker.files.workspaces[OWNER, "sales"].files[path] == content
    read = await door.client.get(url)
    assert (read.status_code, read.content) == (200, content)
    assert (await door.client.get(url, headers={"If-None-Match": read.headers["ETag"]})).status_code == 304
    stale = await door.client.put(url, content=b"1", headers={"If-Match": '"0"'})
    assert (stale.status_code, "X-Workspace-Version" in stale.headers) == (412, True)


async def test_an_archive_is_streamed_both_ways(door: Door) -> None:
    archive = BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        entry = tarfile.TarInfo("large.bin")
        entry.size = 2 * MIB
        tar.addfile(entry, BytesIO(bytes(entry.size)))

    async def send() -> AsyncIterator[bytes]:
        archive.seek(0)
        while chunk := archive.read(65536):
            yield chunk

    url = f"/v1/workspaces/archive-{door.name}/archive"
    assert (await door.client.put(url, content=send())).json()["files"] == 1
    read = await door.client.get(url)
    with tarfile.open(fileobj=BytesIO(read.content)) as tar:
        assert tar.getnames() == ["large.bin"]


@pytest.mark.parametrize("size", [MIB + 1, 6 * MIB, 12 * MIB])
async def test_a_body_that_is_too_large_is_refused_by_the_gateway_in_its_own_words(door: Door, size: int) -> None:
    async with visit(door.town, door.url, http2=False) as client:  # httpx reads no response while it sends by HTTP/2
        response = await client.post("/v1/executions", content=b" " * size)
    assert (response.status_code, response.headers["Content-Type"]) == (413, "application/problem+json")
    assert response.json()["detail"] == f"the body has more than {MIB} bytes"


@pytest.mark.parametrize("announced", [True, False])
async def test_a_file_that_is_refused_while_it_is_sent_is_answered_in_the_gateways_own_words(
    door: Door, announced: bool
) -> None:
    async def send() -> AsyncIterator[bytes]:
        for _ in range(2 * MAX_FILE // MIB):
            yield bytes(MIB)

    content = bytes(2 * MAX_FILE) if announced else send()
    async with visit(door.town, door.url, http2=False) as client:
        response = await client.put(f"{WORKSPACE}/files/refused", content=content)
    assert (response.status_code, response.headers["Content-Type"]) == (413, "application/problem+json")
    assert response.json()["detail"] == f"the body has more than {MAX_FILE} bytes"


async def test_headers_of_requests_and_responses_pass_unchanged(door: Door) -> None:
    key = f"repeated-{door.name}"
    first, again = [
        await door.client.post("/v1/executions?wait=0", json={"code": "2"}, headers={"Idempotency-Key": key})
        for _ in range(2)
    ]
    assert first.headers["Location"] == again.headers["Location"] == f"/v1/executions/{first.json()['name']}"
    refused = await door.client.get("/v1/executions", headers={"Authorization": "Bearer mcpx_wrong"})
    assert (refused.status_code, refused.headers["WWW-Authenticate"].partition(" ")[0]) == (401, "Bearer")
    assert refused.headers["Content-Type"] == "application/problem+json"


async def test_links_have_the_name_and_the_scheme_that_the_client_used(door: Door) -> None:
    name = await door.submit()
    artifact = {"id": "a1", "name": "x.png", "mediaType": "image/png", "bytes": 1, "sha256": "0" * 64}
    finish(door.town.api, name, artifacts=[artifact])

    async def find_links() -> list[str]:
        text = (await door.client.get(f"/v1/executions/{name}")).text
        return re.findall(r'"(https?://[^"]+)"', text)

    links = await find_links()
    assert links == [f"{door.url}/v1/executions/{name}/artifacts/a1"] or not links


async def test_each_client_has_limits_of_its_own_whatever_it_claims(door: Door) -> None:
    """Clients have addresses of their own, and the front door is the trusted proxy."""
    number = 2 + list(BEHIND).index(door.name)
    async with (
        visit(door.town, door.url, address=f"127.0.1.{number}", key=None) as flood,
        visit(door.town, door.url, address=f"127.0.2.{number}", key=None) as other,
    ):
        statuses: list[int] = []
        while 429 not in statuses[-1:] and len(statuses) < 5 * ANONYMOUS:  # a slow machine gets some that are refilled
            claim = {"X-Forwarded-For": f"203.0.113.{len(statuses)}"}
            statuses.append((await flood.get("/v1/executions", headers=claim)).status_code)
        assert len(statuses) > ANONYMOUS
        assert (set(statuses[:-1]), statuses[-1]) == ({401}, 429)
        assert (await other.get("/v1/executions")).status_code == 401


async def test_a_page_of_an_allowed_origin_passes_its_preflight(door: Door) -> None:
    headers = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    allowed = await door.client.options("/mcp", headers={"Origin": PAGE_ORIGIN, **headers})
    assert (allowed.status_code, allowed.headers.get_list("Access-Control-Allow-Origin")) == (200, [PAGE_ORIGIN])
    other = await door.client.options("/mcp", headers={"Origin": "https://evil.example", **headers})
    assert (other.status_code, "Access-Control-Allow-Origin" in other.headers) == (400, False)
    response = await door.client.get("/v1/executions", headers={"Origin": PAGE_ORIGIN})
    assert response.headers.get_list("Access-Control-Allow-Origin") == [PAGE_ORIGIN]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_health_checks_of_a_front_door_need_no_key(door: Door, method: str) -> None:
    async with visit(door.town, door.url, key=None) as client:
        for path in ("/readyz", "/healthz"):
            response = await client.request(method, path)
            assert (response.status_code, bool(response.content)) == (200, method == "GET")


async def test_an_upgrade_is_not_made(door: Door) -> None:
    headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "a"}
    async with visit(door.town, door.url, http2=False) as client:
        response = await client.get("/readyz", headers=headers)
    assert response.status_code in (200, 403)  # Envoy refuses it, the others ignore it


@pytest.mark.parametrize(("choice", "cancelled"), [("", True), ("&onDisconnect=continue", False)])
async def test_a_client_that_leaves_ends_its_wait_and_its_run_unless_it_chose_otherwise(
    door: Door, choice: str, cancelled: bool
) -> None:
    api = door.town.api
    before = list_names(api)
    async with visit(door.town, door.url) as leaving:
        waiting = asyncio.create_task(leaving.post(f"/v1/executions?wait=60{choice}", json={"code": "1"}))
        (name,) = await until(lambda: list_names(api) - before)
        waiting.cancel()
        await asyncio.wait({waiting})
    if cancelled:
        await until(lambda: door.spec(name).get("cancelRequested"))
        return
    finish(api, name)
    done = await door.client.get(f"/v1/executions/{name}?wait=30")
    assert (done.json()["phase"], door.spec(name).get("cancelRequested", False)) == ("Succeeded", False)


async def test_a_client_that_leaves_a_stream_leaves_the_run_alone(door: Door, pod: Pod) -> None:
    name = await door.submit()
    pod.bind(name)
    async with (
        visit(door.town, door.url) as leaving,
        leaving.stream("GET", f"/v1/executions/{name}/events") as response,
    ):
        await next_event(response.aiter_lines(), "status")
        assert pod.supervisor.readers == 1
    await until(lambda: pod.supervisor.readers == 0)
    assert not door.spec(name).get("cancelRequested")


@pytest.mark.parametrize(
    ("kind", "limit", "short"),
    [
        ("nginx", "proxy_read_timeout 330s", "proxy_read_timeout 1s"),
        ("envoy", "stream_idle_timeout: 330s", "stream_idle_timeout: 1s"),
        ("envoy", "timeout: 0s", "timeout: 1s"),
    ],
)
async def test_the_time_limits_of_the_page_are_those_that_end_a_wait_and_cancel_its_run(
    town: Town, kind: Kind, limit: str, short: str
) -> None:
    async with town.running(kind, gateways=[town.gateways[False]], changes=[(limit, short)]) as url:
        async with visit(town, url) as client:
            before = list_names(town.api)
            response = await client.post("/v1/executions?wait=60", json={"code": "1"})
            assert response.status_code == 504, response.text
        (name,) = list_names(town.api) - before
        await until(lambda: town.api.collections[CEX][name]["spec"].get("cancelRequested"))


async def test_the_limit_of_bodies_of_the_page_is_the_one_that_refuses_them(town: Town) -> None:
    changes = [("client_max_body_size 1088m", "client_max_body_size 1m")]
    async with (
        town.running("nginx", gateways=[town.gateways[False]], changes=changes) as url,
        visit(town, url, http2=False) as client,
    ):
        response = await client.put(f"{WORKSPACE}/files/a", content=bytes(2 * MIB))
    assert (response.status_code, response.headers["Content-Type"]) == (413, "text/html")


async def test_time_limits_of_the_page_exceed_a_wait_and_idle_times_end_before_that_of_the_gateway() -> None:
    page = PAGE.read_text()
    found = re.findall(r"(?:timeout|Timeout)[\w.\"-]*(?::|=| )+\"?(\d+)(?:s|\"|`)", page)
    idle, limits = 60, {int(limit) for limit in found} - {0, 60}
    assert len(found) >= 9, found
    assert min(limits) >= Settings.model_fields["max_wait_seconds"].default + 15
    assert idle < 600 < 3600 < KEEP_ALIVE_SECONDS  # the page's, Google's, Envoy's own
    assert f"after {KEEP_ALIVE_SECONDS // 60} minutes" in page


@pytest.mark.parametrize("kind", KINDS)
async def test_a_changed_certificate_is_in_use_for_new_connections_while_a_stream_goes_on(
    town: Town, pod: Pod, kind: Kind
) -> None:
    authority, certificate = certificates_for("127.0.0.1")
    made = running_door(
        kind, town.folder / f"renewed-{kind}", gateways=[town.gateways[False]], certificate=town.certificate,
        programs=town.programs,
    )  # fmt: skip
    door = await asyncio.to_thread(made.__enter__)
    try:
        await follow_over_a_renewal(town, pod, door.url, authority, partial(door.renew, certificate))
    finally:
        await asyncio.to_thread(made.__exit__, None, None, None)


async def test_a_changed_certificate_of_the_gateway_is_in_use_while_a_stream_goes_on_behind_a_front_door(
    town: Town, pod: Pod
) -> None:
    """The front door trusts the new authority as well."""
    authority, certificate = certificates_for("127.0.0.1", SERVICE)
    write_certificate(folder := town.folder / "renewed-tls", town.certificate)
    changes = {"MCP_EXEC_TLS_FOLDER": str(folder)}
    async with running_gateway(town.folder / "renewed-gateway", town.api, **changes) as (_, address):
        renew = partial(write_certificate, folder, certificate)
        await follow_over_a_renewal(town, pod, f"https://{address}", authority, renew)


@pytest.mark.parametrize("kind", KINDS)
async def test_requests_reach_the_other_gateway_when_one_has_ended(town: Town, kind: Kind) -> None:
    """Its address stays in the configuration."""
    (folder := town.folder / f"two-behind-{kind}").mkdir()
    async with AsyncExitStack() as stack:
        (ending, first), (_, second) = [
            await stack.enter_async_context(running_gateway(folder / str(number), town.api)) for number in range(2)
        ]
        url = await stack.enter_async_context(town.running(kind, gateways=[first, second]))
        client = await stack.enter_async_context(visit(town, url, http2=False))

        async def send(method: str, path: str) -> tuple[int, str]:
            response = await client.request(method, path, json={"code": "1"} if method == "POST" else None)
            return response.status_code, response.text if response.is_error else ""

        async def send_all() -> set[tuple[int, str]]:
            requests = (("GET", "/v1/executions"), ("POST", "/v1/executions?wait=0"))
            return set(await asyncio.gather(*(send(*each) for _ in range(16) for each in requests)))

        assert await send_all() == {(200, ""), (202, "")}
        ending.process.send_signal(signal.SIGTERM)
        await ending.ended()
        for _ in range(3):
            assert await send_all() == {(200, ""), (202, "")}


async def follow_over_a_renewal(town: Town, pod: Pod, url: str, authority: str, renew: Callable[[], None]) -> None:
    """Read events before and after the change of a certificate, and wait until new connections have it."""
    trusting = ssl.create_default_context(cadata=authority)
    async with visit(town, url, http2=False) as client:  # httpx ends all streams of HTTP/2 once nginx sends GOAWAY
        created = await client.post("/v1/executions?wait=0", json={"code": "1"})
        pod.bind(created.json()["name"])
        async with client.stream("GET", created.headers["Location"] + "/events") as response:
            lines = response.aiter_lines()
            await next_event(lines, "status")
            renew()

            async def ask() -> bool:
                async with httpx.AsyncClient(verify=trusting, timeout=DEADLINE, trust_env=False) as new:
                    try:
                        return (await new.get(f"{url}/readyz")).status_code == 200
                    except httpx.TransportError:
                        return False

            async with asyncio.timeout(DEADLINE):
                while not await ask():
                    pass
            pod.supervisor.say("stdout", text="later\n")
            assert (await next_event(lines, "stdout"))["text"] == "later\n"
