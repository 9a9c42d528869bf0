"""A client of supervisors and what may answer it in their place: it ends with a SandboxError, in time and memory."""

import asyncio
import socket
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from tests.support.attacks import ANSWERS, ENDLESS, EVERYWHERE, FLOOD_BYTES, MIB, OK, STREAMS, Play, event, hold, say
from tests.support.constants import DEADLINE, POD, SANDBOX_KEY
from tests.support.supervisor import Attack, FakeSupervisor, Stage
from tests.support.until import until

from mcp_exec_common.peers import compute_proof
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_common.supervisor.client import MAX_STREAM_BYTES, SupervisorClient, SupervisorConnection
from mcp_exec_common.supervisor.protocol import Job, SandboxError, SandboxNotProven
from mcp_exec_common.supervisor.tokens import supervisor_token, token_digest
from mcp_exec_sandbox.supervisor.http.connection import ConnectionRegistry, bind_port
from mcp_exec_sandbox.supervisor.http.routes import HttpResponse, SupervisorApi, build_response

SECONDS = 0.2
"""Time limit of the attacked requests."""
MAX_PEAK_BYTES = 16 * MIB
"""Memory that client and fake supervisor may take together. An attack offers at least six times as much."""
JOB = Job(id="uid-1", code="wait", context={}, timeout_seconds=5, output_bytes=4096)
TOKEN = supervisor_token(key=SANDBOX_KEY, namespace="agents", pod=POD)

Call = Callable[[SupervisorConnection], Awaitable[Any]]


async def run(connection: SupervisorConnection) -> None:
    async for _ in connection.run(JOB, timeout_seconds=SECONDS):
        pass


async def follow(connection: SupervisorConnection) -> None:
    async for _ in connection.follow_events(JOB.id, timeout_seconds=SECONDS):
        pass


CALLS: dict[str, Call] = {
    "health": lambda connection: connection.get_wrappers_hash(timeout_seconds=SECONDS),
    "state": lambda connection: connection.get_execution(timeout_seconds=SECONDS),
    "wrappers": lambda connection: connection.put_wrappers(b"{}", timeout_seconds=SECONDS),
    "cancel": lambda connection: connection.cancel(JOB.id, timeout_seconds=SECONDS),
    "recycle": lambda connection: connection.recycle(JOB.id, timeout_seconds=SECONDS),
    "session": lambda connection: connection.get_session(timeout_seconds=SECONDS),
    "accept": run,
    "events": follow,
}
"""Requests of a client by the route that they use."""


@asynccontextmanager
async def attacked(attack: Attack) -> AsyncIterator[SupervisorConnection]:
    """A connection to a supervisor in whose place something else may answer."""
    stage = Stage()
    stage.attack = attack
    made = FakeSupervisor(key=SANDBOX_KEY, namespace="agents", pod=POD, stage=stage)
    async with (
        asyncio.timeout(DEADLINE),
        made.running() as supervisor,
        SupervisorClient.connect(keys=SandboxKeys(SANDBOX_KEY), port=supervisor.port) as client,
    ):
        yield client.get_connection(namespace="agents", pod=POD, address="127.0.0.1")
        stage.steps.let_go()


def at(route: str, play: Play) -> Attack:
    return lambda supervisor, name, request: play if name == route else None


async def refused(route: str, play: Play) -> str:
    """Play an attack; return the error, or an empty text if the client took the answer."""
    async with attacked(at(route, play)) as connection:
        tracemalloc.start()
        try:
            await CALLS[route](connection)
        except SandboxError as error:
            return str(error)
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < MAX_PEAK_BYTES
    return ""


FULLY = ("state", "accept", "events")
"""Routes that meet each attack. Each of the others reads its answer as `state` does, and meets a part of them."""
OTHERS = [route for route in CALLS if route not in FULLY]
ATTACKED = [(route, name) for route in FULLY for name in EVERYWHERE]
ATTACKED += [(OTHERS[number % len(OTHERS)], name) for number, name in enumerate(EVERYWHERE)]


@pytest.mark.parametrize(("route", "name"), ATTACKED)
async def test_no_answer_to_a_request_harms_its_client(route: str, name: str) -> None:
    error = await refused(route, EVERYWHERE[name])
    # of an answer to a cancellation, nothing is used but its end
    assert error or (route in ("cancel", "wrappers") and name not in ("no answer", "a compressed body"))
    assert len(error) < 2000


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("route", ["health", "state"])
async def test_no_json_of_an_answer_harms_its_client(route: str, name: str) -> None:
    assert await refused(route, ANSWERS[name])


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("route", ["accept", "events"])
async def test_no_stream_harms_its_client(route: str, name: str) -> None:
    assert await refused(route, STREAMS[name])


async def test_nothing_after_the_end_of_a_run_is_read() -> None:
    end = event("end", phase="Succeeded")
    async with attacked(at("events", hold(ENDLESS + end + event(seq=2) + b"x" * MIB))) as connection:
        assert [each.type async for each in connection.follow_events(JOB.id, timeout_seconds=DEADLINE)] == ["end"]


async def test_a_client_follows_no_redirect_and_keeps_no_cookie() -> None:
    seen: list[tuple[str, str | None]] = []

    async def redirect(request: web.Request, over: asyncio.Event) -> web.StreamResponse:
        seen.append((request.path, request.headers.get("Cookie")))
        return web.Response(status=302, headers={"Location": "/healthz", "Set-Cookie": "a=b; Path=/"})

    async with attacked(at("state", redirect)) as connection:
        for _ in range(2):
            with pytest.raises(SandboxError, match="302"):
                await connection.get_execution()
    assert seen == [("/v1/execution", None)] * 2


class Witness:
    """Counts the requests that carry the pod's token."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.tokens = 0

    def __call__(self, supervisor: FakeSupervisor, name: str, request: web.Request) -> Play | None:
        self.tokens += TOKEN in request.headers.get("Authorization", "")
        return self.play if name == "prove" else None


def answer(**changes: str) -> Play:
    """An answer to the request for a proof that is right but for the changes."""

    async def prove(request: web.Request, over: asyncio.Event) -> web.StreamResponse:
        given = {"key": token_digest(TOKEN), "nonce": request.query["nonce"], "address": "127.0.0.1"} | changes
        return web.json_response({"proof": compute_proof(**given), "address": given["address"]})

    return prove


STRANGERS: dict[str, Play] = {
    **EVERYWHERE,
    **ANSWERS,
    "a proof of another pod": answer(key="a" * 64),
    "a proof for another nonce": answer(nonce="b" * 64),
    "a proof for another client": answer(address="10.0.0.9"),
    "a proof without an address": say(OK + b'content-length: 13\r\n\r\n{"proof": "a"}'),
    "a proof and more": say(OK + b"content-length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n\r\n"),
}


@pytest.mark.parametrize("name", STRANGERS)
async def test_whoever_gives_no_proof_gets_no_token(name: str) -> None:
    witness = Witness(STRANGERS[name])
    async with attacked(witness) as connection:
        results = await asyncio.gather(*(call(connection) for call in CALLS.values()), return_exceptions=True)
    assert {type(each) for each in results} <= {SandboxError, SandboxNotProven}
    assert witness.tokens == 0


async def test_a_relay_to_the_real_supervisor_gets_no_token() -> None:
    """Code has the real proof made for itself. Its address differs from that of the client, as another pod's does."""
    passed = bytearray()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        real_reader, real_writer = await asyncio.open_connection(
            "127.0.0.1", supervisor.port, local_addr=("127.0.0.9", 0)
        )
        while data := await reader.read(4096):
            passed.extend(data)
            real_writer.write(data)
            writer.write(await real_reader.read(4096))
        real_writer.close()
        writer.close()

    made = FakeSupervisor(key=SANDBOX_KEY, namespace="agents", pod=POD)
    async with asyncio.timeout(DEADLINE), made.running() as supervisor:
        server = await asyncio.start_server(relay, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with SupervisorClient.connect(keys=SandboxKeys(SANDBOX_KEY), port=port) as client:
            connection = client.get_connection(namespace="agents", pod=POD, address="127.0.0.1")
            with pytest.raises(SandboxNotProven, match=r"passed on a proof for 127\.0\.0\.9"):
                await connection.get_execution()
        server.close()
    assert b"/v1/proof" in passed
    assert b"Authorization" not in passed


async def test_a_connection_is_proved_once_and_each_new_one_again() -> None:
    asked: list[str] = []
    async with attacked(lambda supervisor, name, request: asked.append(name)) as connection:
        await connection.get_health()
        await connection.get_execution()
        assert asked == ["prove", "health", "state"]
        pending = connection.prepare_run(JOB, timeout_seconds=DEADLINE)
        await until(lambda: "accept" in asked)
        await connection.get_execution()
        assert asked == ["prove", "health", "state", "accept", "prove", "state"]
        pending.withdraw()


@pytest.mark.parametrize("address", ["::1", "::ffff:127.0.0.1"])
async def test_a_supervisor_proves_itself_over_ipv6(address: str) -> None:
    """Also if it sees a client of IPv4 by a mapped address, as one that listens for both does."""
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")

    class Api(SupervisorApi):
        def handle(self, request: Any) -> HttpResponse | Awaitable[HttpResponse]:
            return build_response(200, {"state": "idle"}) if request.path == "/healthz" else super().handle(request)

    registry = ConnectionRegistry(Api(sandbox=Any, token_sha256=token_digest(TOKEN)))  # type: ignore[arg-type]
    server = await asyncio.get_running_loop().create_server(registry.create, sock=bind_port("", 0))
    try:
        port = server.sockets[0].getsockname()[1]
        async with (
            asyncio.timeout(DEADLINE),
            SupervisorClient.connect(keys=SandboxKeys(SANDBOX_KEY), port=port) as client,
        ):
            connection = client.get_connection(namespace="agents", pod=POD, address=address)
            assert (await connection.get_health()).state == "idle"
    finally:
        registry.close_all()
        server.close()


def test_a_flood_is_more_than_a_client_takes() -> None:
    assert FLOOD_BYTES > 6 * MAX_PEAK_BYTES - 1
    assert FLOOD_BYTES > MAX_STREAM_BYTES
