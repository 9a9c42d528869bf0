"""Cost of connections that are protected: by the proof of the peer, which is in use, and by TLS 1.3, which is not.

Client and server share one process, so that each figure contains the work of both sides. The server is a simulated
supervisor that runs nothing, or a broker that answers 8 KiB to 2 KiB. The three kinds of connection take turns.

    python bench/tls.py --json tls.json
"""

import argparse
import asyncio
import resource
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import aiohttp
from harness import percentile, run, summary, table, write_json
from supervisors import SimulatedConnection, SimulatedSupervisors, read_request
from waits import within

from mcp_exec_common.peers import PROOF_PATH, ProvenConnector, compute_proof, open_session, read_answer
from mcp_exec_common.supervisor.client import SupervisorConnection
from mcp_exec_common.supervisor.protocol import Job
from mcp_exec_common.supervisor.tokens import token_digest

ADDRESS: Final = "127.0.0.1"
TOKEN: Final = "a" * 64
KEY: Final = token_digest(TOKEN)
HEADERS: Final = {"Authorization": f"Bearer {TOKEN}"}
JOB: Final = Job(id="uid", code="print(1)", context={}, timeout_seconds=10, output_bytes=65536)
CONNECTIONS: Final = 500
"""Connections whose memory is measured."""
AT_ONCE: Final = 20
"""Connections that are opened at once: each proof has a limit of three seconds, and all share this process."""
COMMAND_SECONDS: Final = 120
SAMPLES_SECONDS: Final = 300
KINDS: Final = ("plain", "proof", "TLS")
CALL: Final = b"x" * 2048
ANSWER: Final = b"HTTP/1.1 200 OK\r\ncontent-length: 8192\r\n\r\n" + b"y" * 8192


class UniformBroker(asyncio.Protocol):
    """Connection to a broker that answers every call alike."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a connection."""
        self._transport = cast(asyncio.Transport, transport)
        self._buffer = bytearray()

    def data_received(self, data: bytes) -> None:
        """Answer what is complete."""
        self._buffer += data
        while (request := read_request(self._buffer)) is not None:
            if request.path != PROOF_PATH:
                self._transport.write(ANSWER)
                continue
            proof = compute_proof(key=KEY, nonce=request.query.removeprefix("nonce="), address=ADDRESS)
            body = b'{"proof": "%b", "address": "%b"}' % (proof.encode(), ADDRESS.encode())
            self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))


@dataclass(frozen=True, kw_only=True)
class Servers:
    """The servers, without and with TLS."""

    supervisors: SimulatedSupervisors
    ports: dict[tuple[str, bool], int]
    """By `run` or `call`, and by whether TLS is used."""
    trust: ssl.SSLContext

    def url(self, what: str, kind: str) -> str:
        """Return the URL for a kind of connection."""
        return f"{'https' if kind == 'TLS' else 'http'}://{ADDRESS}:{self.ports[what, kind == 'TLS']}"

    @asynccontextmanager
    async def session(self, kind: str) -> AsyncIterator[aiohttp.ClientSession]:
        """Open a session of a kind."""
        connector: aiohttp.BaseConnector = aiohttp.TCPConnector(limit=0, ssl=self.trust)
        if kind == "proof":
            await connector.close()
            connector = ProvenConnector(find_keys=lambda headers: (KEY,), keepalive_timeout=3600)
        async with open_session(connector) as session:
            yield session

    async def run(self, session: aiohttp.ClientSession, kind: str) -> None:
        """Run a job."""
        supervisor = self.supervisors.find(ADDRESS)
        assert supervisor is not None
        supervisor.id, supervisor.finished = None, False
        supervisor.lines.clear()
        connection = SupervisorConnection(session=session, url=self.url("run", kind), headers=HEADERS)
        async for _ in connection.run(JOB, timeout_seconds=10):
            pass

    async def call(self, session: aiohttp.ClientSession, kind: str, body: bytes | AsyncIterator[bytes] = CALL) -> None:
        """Call a tool. `body` yields CALL."""
        headers = HEADERS | {"Content-Length": str(len(CALL))}
        async with session.post(self.url("call", kind), data=body, headers=headers, allow_redirects=False) as response:
            await read_answer(response, limit=65536)


async def execute(*command: str) -> bytes:
    """Run a program and return its output."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    async with within(COMMAND_SECONDS, f"the end of {command[0]}"):
        output, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{command[0]} failed")
    return output


@asynccontextmanager
async def serving() -> AsyncIterator[Servers]:
    """Start all servers."""
    with tempfile.TemporaryDirectory() as folder:
        key, certificate = f"{folder}/key.pem", f"{folder}/cert.pem"
        await execute(
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", "/CN=peer", "-addext", f"subjectAltName=IP:{ADDRESS}"),
            *("-keyout", key, "-out", certificate),
        )
        own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        own.load_cert_chain(certificate, key)
        trust = ssl.create_default_context(cafile=certificate)
    own.minimum_version = trust.minimum_version = ssl.TLSVersion.TLSv1_3
    supervisors = SimulatedSupervisors(run_seconds=0)
    supervisors.add(ADDRESS, token_sha256=KEY)
    factories: dict[str, Callable[[], asyncio.Protocol]] = {
        "run": lambda: SimulatedConnection(supervisors),
        "call": UniformBroker,
    }
    async with AsyncExitStack() as stack:
        ports = {}
        for what, factory in factories.items():
            for secure in (False, True):
                server = await asyncio.get_running_loop().create_server(
                    factory, ADDRESS, 0, ssl=own if secure else None, backlog=1024
                )
                stack.callback(server.close)
                ports[what, secure] = server.sockets[0].getsockname()[1]
        yield Servers(supervisors=supervisors, ports=ports, trust=trust)


@dataclass(kw_only=True)
class Timings:
    """Milliseconds of one kind of request."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    """CPU of client and server together, which other processes of the machine disturb less."""

    async def add(self, work: Awaitable[None]) -> None:
        """Time something."""
        wall, cpu = time.perf_counter(), time.process_time()
        await work
        self.wall.append((time.perf_counter() - wall) * 1000)
        self.cpu.append((time.process_time() - cpu) * 1000)

    def summarize(self) -> dict[str, float]:
        """Return the figures."""
        return summary(self.wall) | {"CPU p50": round(percentile(self.cpu, 0.5), 3)}


async def measure_kept(servers: Servers, what: str, samples: int) -> dict[str, Timings]:
    """Measure requests over connections that stay open."""
    request = getattr(servers, what)
    found = {kind: Timings() for kind in KINDS}
    async with AsyncExitStack() as stack:
        sessions = {kind: await stack.enter_async_context(servers.session(kind)) for kind in KINDS}
        for kind in KINDS:
            await request(sessions[kind], kind)
        for _ in range(samples):
            for kind in KINDS:
                await found[kind].add(request(sessions[kind], kind))
    return found


async def measure_new(servers: Servers, what: str, samples: int) -> dict[str, Timings]:
    """Measure the first request over a new connection."""
    request = getattr(servers, what)
    found = {kind: Timings() for kind in KINDS}
    for _ in range(samples):
        for kind in KINDS:
            async with servers.session(kind) as session:
                await found[kind].add(request(session, kind))
    return found


async def measure_memory(kind: str) -> float:
    """Return the KiB that an open connection takes on both sides together."""
    opening, all_open = asyncio.Semaphore(AT_ONCE), asyncio.Barrier(CONNECTIONS)

    async def send_when_all_are_open() -> AsyncIterator[bytes]:
        opening.release()
        async with within(COMMAND_SECONDS, f"the opening of {CONNECTIONS} connections"):
            await all_open.wait()
        yield CALL

    async with serving() as servers, servers.session(kind) as session:
        await servers.call(session, kind)
        before = resident_kib()
        # in flight at once, so that each gets a connection of its own
        async with within(COMMAND_SECONDS, f"{CONNECTIONS} calls at once"), asyncio.TaskGroup() as calls:
            for _ in range(CONNECTIONS):
                await opening.acquire()
                calls.create_task(servers.call(session, kind, send_when_all_are_open()))
        return round((resident_kib() - before) / CONNECTIONS, 1)


def resident_kib() -> float:
    """Return the memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1024


async def measure(samples: int) -> dict[str, Any]:
    """Measure everything; memory in processes of their own."""
    memory = {kind: float(await execute(sys.executable, __file__, "--memory", kind)) for kind in KINDS}
    rows: dict[str, dict[str, float]] = {}
    async with serving() as servers:
        for what, name in (("run", "run"), ("call", "broker call")):
            async with within(SAMPLES_SECONDS, f"{samples} samples of a {name} by each kind of connection"):
                kept = await measure_kept(servers, what, samples)
                new = await measure_new(servers, what, max(samples // 10, 10))
            for way, found in (("kept", kept), ("new", new)):
                rows |= {f"{name}, {way} connection, {kind}": found[kind].summarize() for kind in KINDS}
    return {"milliseconds": rows, "connection_kib": memory}


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--samples", type=int, default=2000)
    options.add_argument("--memory", choices=KINDS, help="measure only the memory of one kind of connection")
    options.add_argument("--json", type=Path, metavar="FILE", help="file for all figures")
    given = options.parse_args()
    if given.memory:
        print(run(measure_memory(given.memory)))
        return
    figures = run(measure(given.samples))
    print(table(figures["milliseconds"]))
    print("KiB of memory for an open connection, both sides:", figures["connection_kib"])
    write_json(given.json, figures)


if __name__ == "__main__":
    main()
