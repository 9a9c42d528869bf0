"""HTTP connections of the supervisor, with handlers of the test's choice."""

import asyncio
import contextlib

import pytest
from tests.support.until import until

from mcp_exec_sandbox.supervisor.execution.events import EventBatch
from mcp_exec_sandbox.supervisor.http import connection
from mcp_exec_sandbox.supervisor.http.connection import ConnectionRegistry
from mcp_exec_sandbox.supervisor.http.routes import HttpResponse


class FaultyApi:
    """Handlers that fail unexpectedly, each at another moment."""

    def refuse(self, request):
        if request.path == "/refuse":
            raise RuntimeError("refuse")

    def get_max_body_bytes(self, request):
        return 1000

    def handle(self, request):
        if request.path == "/handle":
            raise RuntimeError("handle")
        if request.path == "/stream":
            return HttpResponse(status=200, stream=self._stream())
        return self._respond()

    async def _respond(self):
        await asyncio.sleep(0)
        raise RuntimeError("later")

    async def _stream(self):
        yield EventBatch(lines=b'{"seq":1}\n', is_last=False)
        raise RuntimeError("stream")


@pytest.fixture
async def request_path():
    """A function that requests a path and returns everything until the server closes the connection."""
    registry = ConnectionRegistry(FaultyApi())
    server = await asyncio.get_running_loop().create_server(registry.create, "127.0.0.1", 0)

    async def request(path):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{{}}".encode())
        response = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        return response

    yield request
    registry.close_all()
    server.close()


@pytest.mark.parametrize("path", ["/refuse", "/handle", "/later"])
async def test_an_unexpected_error_answers_500_and_closes_the_connection(request_path, capsys, path):
    response = await request_path(path)
    head, _, body = response.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 500 ")
    assert b"connection: close" in head.lower()
    assert b'"error"' in body
    logged = capsys.readouterr().out
    assert '"error": "RuntimeError"' in logged
    assert f"{path[1:]}:" in logged, "the place"


async def test_an_unexpected_error_during_a_stream_closes_it_before_its_end(request_path, capsys):
    response = await request_path("/stream")
    assert response.startswith(b"HTTP/1.1 200 ")
    assert b'{"seq":1}' in response
    assert not response.endswith(b"0\r\n\r\n")
    assert '"error": "RuntimeError"' in capsys.readouterr().out


async def connect(registry, **options):
    """Connect to a server of the registry; return the server and the streams."""
    server = await asyncio.get_running_loop().create_server(registry.create, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), **options)
    return server, reader, writer


@pytest.mark.parametrize("sent", [b"", b"G", b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{"])
async def test_a_client_that_sends_nothing_or_a_part_is_cut_off(monkeypatch, sent):
    monkeypatch.setattr(connection, "REQUEST_SECONDS", 0.05)
    server, reader, writer = await connect(ConnectionRegistry(FaultyApi()))
    writer.write(sent)
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 20) == b""
    writer.close()
    server.close()


class TalkativeApi(FaultyApi):
    """Handlers whose stream does not end."""

    async def _stream(self):
        while True:
            yield EventBatch(lines=b"x" * 65536, is_last=False)


def is_streaming():
    return any("_write_stream" in repr(task) for task in asyncio.all_tasks())


async def test_a_client_that_reads_nothing_is_cut_off(monkeypatch):
    monkeypatch.setattr(connection, "WRITE_SECONDS", 0.05)
    server, _, writer = await connect(ConnectionRegistry(TalkativeApi()), limit=1024)
    writer.write(b"POST /stream HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
    await until(is_streaming)
    await until(lambda: not is_streaming())
    writer.close()
    server.close()


async def test_a_connection_waits_for_its_next_request_longer_than_for_the_first(monkeypatch):
    monkeypatch.setattr(connection, "REQUEST_SECONDS", 0.05)
    api = QuietApi()
    server, reader, writer = await connect(ConnectionRegistry(api))
    slow_server, slow_reader, slow_writer = await connect(ConnectionRegistry(api))
    request = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
    writer.write(request)
    await asyncio.wait_for(reader.readuntil(b"{}"), 20)
    assert await asyncio.wait_for(slow_reader.read(), 20) == b""  # so much time has passed
    writer.write(request)
    await asyncio.wait_for(reader.readuntil(b"{}"), 20)
    for each in (writer, slow_writer, server, slow_server):
        each.close()


class QuietApi(FaultyApi):
    """Handlers that respond at once."""

    def handle(self, request):
        return HttpResponse(status=200, body=b"{}")
