"""Iterations that a program leaves early: it ends without a word on standard error, and holds no connection."""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.support.processes import SECONDS
from tests.support.scripted_gateway import stats

PROGRAM = """
import asyncio
import sys
from contextlib import suppress

from mcp_exec_client import AsyncClient
from mcp_exec_client.agent import Agent, OfflineProvider

kept = []


async def by_break(items):
    async for item in items:
        break


async def by_return(items):
    async for item in items:
        return item


async def by_an_error(items):
    with suppress(KeyError):
        async for item in items:
            raise KeyError


async def by_keeping_it(items):
    kept.append(items)
    async for item in items:
        break


async def after_one_item(items):
    await anext(items)


async def by_closing_it(items):
    async for item in items:
        break
    await items.aclose()
    assert await anext(items, None) is None


async def unused(items):
    pass


async def by_a_timeout_in_the_body(items):
    with suppress(TimeoutError):
        async with asyncio.timeout(0.1):
            async for item in items:
                await asyncio.Event().wait()


async def by_a_timeout_of_the_iteration(items):
    with suppress(TimeoutError):
        async with asyncio.timeout(0.1):
            async for item in items:
                pass


async def by_a_task_that_nobody_awaits(items):
    async def read():
        async for item in items:
            pass

    kept.append(asyncio.create_task(read()))
    await asyncio.sleep(0.1)


async def main(leave):
    async with AsyncClient(sys.argv[1], api_key="k") as client:
        agent = Agent(client, OfflineProvider(["x y z"]), mode="code")
        await leave(eval(sys.argv[2]))
    print(leave.__name__)


for leave in (
    by_break, by_return, by_an_error, by_keeping_it, after_one_item, by_closing_it, unused, by_a_timeout_in_the_body,
    by_a_timeout_of_the_iteration, by_a_task_that_nobody_awaits,
):
    asyncio.run(main(leave))
"""
WAYS = re.findall(r"async def ((?:by_|after_|unused)\w*)", PROGRAM)
ITERATIONS = {
    "stream": "client.stream('e1')",
    "list": "client.list()",
    "audit": "client.audit()",
    "records": "client.records.read('executions')",
    "files": "client.files.list('w')",
    "agent": "agent.stream('do it')",
}
FILE = {"path": "a", "size": 1, "sha256": "0" * 64}


def answer(path: str) -> bytes:
    """Return the start of an answer: of a stream, an event, and of a page, items with a token of the next one."""
    if path == "/api/v1/mcp/tools/search":
        return b"[]"
    if path == "/v1/stats":
        return json.dumps(stats()).encode()
    at = "2026-11-21T20:00:00.000000Z"
    if path.endswith("/events"):
        return (
            b'{"id": "1.0", "seq": 0, "at": "%s", "type": "status", "phase": "Running", "reason": ""}\n' % at.encode()
        )
    item = {"name": "e1", "namespace": "agents", "pool": "default", "phase": "Running", "reason": "", "createdAt": at}
    call = {
        "id": "c1",
        "at": at,
        "namespace": "agents",
        "execution": "e1",
        "tool": "a.b",
        "server": "a",
        "outcome": "Allowed",
        "durationMs": 1,
    }
    item_of = {"/v1/executions": item, "/v1/audit": call, "/v1/records": {"name": "e1"}, "/v1/workspaces": FILE}
    found = next((each for prefix, each in item_of.items() if path.startswith(prefix)), {})
    return json.dumps({"items": [found] * 3, "continue": "t", "next": "t", "version": 1}).encode()


class PausingServer:
    """Answers like a gateway: each first request at once; streams and further pages pause without an end."""

    url = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["PausingServer"]:
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                path = line.split()[1].decode()
                while (await reader.readline()).strip():
                    pass
                body = answer(path.partition("?")[0])
                is_stream = "/events" in path
                length = b"" if is_stream else b"Content-Length: %d\r\n" % len(body)
                if "=t" in path:  # a further page
                    continue
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + length + b"\r\n" + body)
                await writer.drain()
        finally:
            writer.close()


@pytest.mark.parametrize("iteration", ITERATIONS.values(), ids=ITERATIONS)
async def test_a_program_that_leaves_an_iteration_ends_in_silence(iteration: str) -> None:
    async with PausingServer().running() as server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-c", PROGRAM, server.url, iteration),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(SECONDS):
            out, err = await process.communicate()
        assert err.decode() == ""
        assert (process.returncode, out.decode().split()) == (0, WAYS)
