"""When an answer counts as delivered: once its last byte has reached the client's system, however soon it closes."""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

import pytest
from aiohttp import ClientError
from tests.component.gateway.conftest import DEADLINE, KEY, Gateway
from tests.component.gateway.test_mcp_replicas import RUN, classic, initialize

from mcp_exec_common.process.receipts import Receipt

CALLS = 200
CUTS = 20
CALLED_TOOLS = {"toolCalls": {"total": 1, "byTool": {"expenses.add_expense": 1}}}
LARGE = {"output": {"stdout": "x" * 24_000, "stderr": "y" * 24_000, "truncated": False}}
"""An answer that a client with small buffers has not received when it reads its beginning."""
SMALL_BUFFER = 4096


@contextmanager
def calling(url: str, session: str, *, buffer: int = 0) -> Iterator[BinaryIO]:
    """Send a call of `run_code` on a connection of its own, and close it at the end."""
    request = classic({"id": 1, "method": "tools/call", "params": RUN}, session)
    body = json.dumps(request["json"]).encode()
    headers = {**request["headers"], "Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    lines = [f"{name}: {value}" for name, value in {**headers, "Host": "g", "Content-Length": len(body)}.items()]
    host, port = url.removeprefix("http://").split(":")
    with socket.socket() as connection:
        connection.settimeout(DEADLINE)
        if buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        connection.connect((host, int(port)))
        connection.sendall("\r\n".join(["POST /mcp HTTP/1.1", *lines, "", ""]).encode() + body)
        with connection.makefile("rb", buffering=buffer or -1) as stream:
            yield stream


def read_answer(stream: BinaryIO) -> dict[str, Any]:
    """Return the answer as soon as its event is complete, as version 1 of the Python SDK does."""
    while not (line := stream.readline()).startswith(b"data: {"):
        pass
    assert stream.readline() == b"\n"
    content: dict[str, Any] = json.loads(line[6:])["result"]["structuredContent"]
    return content


def call_and_close(url: str, session: str) -> dict[str, Any]:
    with calling(url, session) as stream:
        return read_answer(stream)


def cut(url: str, session: str) -> None:
    """Call and close the connection where the answer begins."""
    with calling(url, session, buffer=SMALL_BUFFER) as stream:
        while not stream.readline().startswith(b"event: message"):
            pass


async def call(gateway: Gateway) -> dict[str, Any]:
    """Call in a session of its own and read the answer. The client has a thread of its own, as others have."""
    return await asyncio.to_thread(call_and_close, gateway.url, await initialize(gateway))


async def test_of_200_quick_calls_whose_client_closes_at_the_last_byte_each_runs(gateway: Gateway) -> None:
    gateway.finish_all(**CALLED_TOOLS)
    results = [await call(gateway) for _ in range(CALLS)]
    assert [result["execution"] for result in results if result.get("attached")] == []
    assert len({result["execution"] for result in results}) == CALLS


@pytest.mark.parametrize("status", [{}, CALLED_TOOLS], ids=["without tools", "with tools"])
async def test_calls_that_are_cut_before_the_last_byte_all_get_their_run(
    gateway: Gateway, status: dict[str, Any]
) -> None:
    gateway.finish_all(**LARGE, **status)
    for _ in range(CUTS):
        known = set(gateway.executions)
        await asyncio.to_thread(cut, gateway.url, await initialize(gateway))  # and at once:
        again = await call(gateway)
        (name,) = set(gateway.executions) - known
        assert (again["execution"], again["attached"]) == (name, True)
    assert len(gateway.executions) == CUTS


@pytest.mark.parametrize(
    ("status", "arguments", "is_kept"),
    [(CALLED_TOOLS, {}, True), ({}, {"session": "s"}, True), ({}, {"workspace": "w"}, True), ({}, {}, False)],
    ids=["tools", "a session", "a workspace", "nothing"],
)
async def test_an_answer_whose_delivery_is_in_doubt_is_kept_if_the_run_may_have_had_effects(
    gateway: Gateway,
    monkeypatch: pytest.MonkeyPatch,
    status: dict[str, Any],
    arguments: dict[str, Any],
    is_kept: bool,
) -> None:
    """The client's system has acknowledged the last byte, and then resets the connection."""
    looked: list[Receipt] = []

    def look(receipt: Receipt) -> bool:
        looked.append(receipt)
        receipt.transport.abort()
        return len(looked) == 1

    monkeypatch.setattr(Receipt, "is_complete", look)
    gateway.finish_all(**status)
    params = {"name": "run_code", "arguments": {"code": "work()", **arguments}}
    request = classic({"id": 1, "method": "tools/call", "params": params}, await initialize(gateway))
    with suppress(ClientError):
        await gateway.ask("POST", "/mcp", **request)
    monkeypatch.undo()
    again = (await gateway.ask("POST", "/mcp", **request)).text
    assert ('"attached":true' in again) == is_kept
    assert len(gateway.executions) == (1 if is_kept else 2)
