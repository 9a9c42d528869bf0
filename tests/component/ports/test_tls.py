"""A port that serves TLS itself: by the certificate of a mounted Secret, and by the next one without a restart."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from tests.support.certificates import certificates_for
from tests.support.mounts import write_version
from tests.support.pace import paced
from tests.support.until import until

from mcp_exec_common.process.connections import ConnectionLimits
from mcp_exec_common.process.http_server import build_server
from mcp_exec_common.process.mounts import MountedFolder
from mcp_exec_common.process.tls import MountedCertificate

HOST = "gateway.example"
DEADLINE = paced(20)


@dataclass
class Issued:
    """A certificate, as the entries of a Secret, and the authority that signed it."""

    authority: str
    entries: dict[str, bytes]


def issue() -> Issued:
    authority, both = certificates_for(HOST)
    certificate, begin, key = both.partition("-----BEGIN PRIVATE KEY-----")
    return Issued(authority, {"tls.crt": certificate.encode(), "tls.key": (begin + key).encode()})


@dataclass
class Port:
    number: int
    folder: Path

    async def open(self, issued: Issued) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = ssl.create_default_context(cadata=issued.authority)
        async with asyncio.timeout(DEADLINE):
            return await asyncio.open_connection("127.0.0.1", self.number, ssl=context, server_hostname=HOST)

    async def ask(self, issued: Issued, path: str = "/") -> str:
        """Return what a request on a connection of its own gets, verified by the authority."""
        reader, writer = await self.open(issued)
        try:
            async with asyncio.timeout(DEADLINE):
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
                return (await reader.read()).decode()
        finally:
            writer.close()

    async def serves(self, issued: Issued) -> bool:
        try:
            return "200 OK" in await self.ask(issued)
        except ssl.SSLError:
            return False


async def respond(request: Request) -> PlainTextResponse:
    address = request.client.host if request.client else "nobody"
    return PlainTextResponse(f"{request.url.scheme} from {address}, {len(await request.body())} bytes")


APP = Starlette(routes=[Route("/", respond, methods=["GET", "POST"])])


@contextlib.asynccontextmanager
async def serving(folder: Path, issued: Issued, **limits: Any) -> AsyncIterator[Port]:
    write_version(folder, issued.entries)
    certificate = MountedCertificate(folder)
    server = build_server(
        APP,
        port=0,
        keep_alive_seconds=30,
        shutdown_seconds=1,
        certificate=certificate,
        limits=ConnectionLimits(**limits),
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        tasks = [asyncio.create_task(server.serve(sockets=[listener])), asyncio.create_task(certificate.follow())]
        await server.listening.wait()
        try:
            yield Port(listener.getsockname()[1], folder)
        finally:
            tasks[1].cancel()
            server.should_exit = server.force_exit = True
            await asyncio.wait(tasks, timeout=DEADLINE)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MountedFolder, "CHECK_SECONDS", 0.01)


async def test_a_client_that_verifies_the_certificate_is_served_and_its_address_is_known(tmp_path: Path) -> None:
    issued = issue()
    async with serving(tmp_path, issued) as port:
        assert (await port.ask(issued)).endswith("https from 127.0.0.1, 0 bytes")
        with pytest.raises(ssl.SSLCertVerificationError):
            await port.ask(issue())


async def test_a_body_that_comes_with_the_end_of_the_handshake_is_whole(tmp_path: Path) -> None:
    issued, body = issue(), b"a" * 1_000_000
    async with serving(tmp_path, issued) as port:
        reader, writer = await port.open(issued)
        writer.write(f"POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        async with asyncio.timeout(DEADLINE):
            assert b"1000000 bytes" in await reader.readuntil(b"bytes")
        writer.close()


async def test_new_connections_get_a_changed_certificate_and_open_ones_go_on(tmp_path: Path) -> None:
    first, second = issue(), issue()
    async with serving(tmp_path, first) as port:
        reader, writer = await port.open(first)
        write_version(tmp_path, second.entries)
        async with asyncio.timeout(DEADLINE):
            while not await port.serves(second):
                pass
        assert not await port.serves(first)
        writer.write(f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        async with asyncio.timeout(DEADLINE):
            assert b"https from" in await reader.readuntil(b"bytes")
        writer.close()


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"tls.crt": b"no certificate", "tls.key": b"no key"}, "can't be read"),
        ({"tls.crt": issue().entries["tls.crt"], "tls.key": issue().entries["tls.key"]}, "can't be read"),
        ({"tls.crt": issue().entries["tls.crt"]}, "has no entry tls.key"),
    ],
    ids=["no PEM", "key of another certificate", "no key"],
)
async def test_a_certificate_that_cannot_be_used_leaves_the_last_one_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong: dict[str, bytes], problem: str
) -> None:
    issued = issue()
    async with serving(tmp_path, issued) as port:
        write_version(tmp_path, wrong)
        await until(lambda: problem in caplog.text)
        assert await port.serves(issued)
        following = issue()
        write_version(tmp_path, following.entries)
        async with asyncio.timeout(DEADLINE):
            while not await port.serves(following):
                pass


@pytest.mark.parametrize(
    ("entries", "said"),
    [({}, "has no entry tls.crt"), ({"tls.crt": b"a", "tls.key": b"b"}, "no certificate and key in PEM")],
)
def test_a_process_does_not_start_without_a_certificate(tmp_path: Path, entries: dict[str, bytes], said: str) -> None:
    write_version(tmp_path, entries)
    with pytest.raises(ValueError, match=said):
        MountedCertificate(tmp_path)


async def test_connections_that_do_not_shake_hands_make_room_for_others(tmp_path: Path) -> None:
    issued = issue()
    async with serving(tmp_path, issued, max_per_peer=3) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port.number) for _ in range(5)]
        assert await port.serves(issued)
        async with asyncio.timeout(DEADLINE):
            for reader, _ in silent[:2]:
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
        for _, writer in silent:
            writer.close()


async def test_a_handshake_has_as_much_time_as_a_head(tmp_path: Path) -> None:
    async with serving(tmp_path, issue(), head_seconds=0.05) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
        async with asyncio.timeout(DEADLINE):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()


async def test_a_client_without_tls_gets_no_response(tmp_path: Path) -> None:
    async with serving(tmp_path, issue()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
        writer.write(f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        async with asyncio.timeout(DEADLINE):
            with contextlib.suppress(ConnectionResetError):
                assert b"HTTP" not in await reader.read()
        writer.close()
