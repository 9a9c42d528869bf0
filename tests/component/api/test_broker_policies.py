"""Policies of repetition: after which failures of a replica a request reaches the next one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from tests.support.pace import paced

from mcp_exec_common.broker.client import BrokerClient, BrokerError, Repeat
from mcp_exec_common.broker.grants import GrantSigner
from mcp_exec_common.sandbox_keys import SandboxKeys

DEADLINE = paced(10.0)
UNREACHABLE = "127.0.0.1:1"
PATH = "/v1/thing"
SECONDS = 2.0
GOOD = b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"good": 1}\n'


def refusal(status: int) -> bytes:
    return f"HTTP/1.1 {status} No\r\nContent-Length: 4\r\n\r\nno\r\n".encode()


@asynccontextmanager
async def replica(answer: bytes) -> AsyncIterator[str]:
    """Run a replica that sends these bytes to each request and closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"


@asynccontextmanager
async def client(*addresses: str) -> AsyncIterator[BrokerClient]:
    async with asyncio.timeout(DEADLINE), aiohttp.ClientSession() as session:
        signer = GrantSigner(keys=SandboxKeys(b"the key of the sandboxes"))
        yield BrokerClient(session=session, signer=signer, sender="gateway", addresses=lambda: addresses)


async def reaches_the_next(first: str, repeat: Repeat) -> bool:
    """Return whether a request that fails at the first replica is answered by the next one."""
    async with replica(GOOD) as good, client(first, good) as broker:
        try:
            return await broker.ask("GET", PATH, timeout_seconds=SECONDS, repeat=repeat) == {"good": 1}
        except BrokerError:
            return False


@pytest.mark.parametrize("repeat", Repeat)
async def test_a_replica_that_cannot_be_reached_is_passed_over(repeat: Repeat) -> None:
    assert await reaches_the_next(UNREACHABLE, repeat)


@pytest.mark.parametrize(
    ("answer", "policies"),
    [
        (b"", {Repeat.IF_FAILED}),
        (refusal(503), {Repeat.IF_FAILED}),
        (refusal(401), {Repeat.IF_FAILED}),
        (refusal(404), {Repeat.IF_FAILED}),
        (refusal(409), set()),
        (refusal(501), set()),
        (refusal(307), {Repeat.IF_FAILED}),
    ],
    ids=["broken off", "failed", "another key", "another release", "refused", "without the feature", "redirected"],
)
@pytest.mark.parametrize("repeat", Repeat)
async def test_only_its_policy_sends_a_request_again(answer: bytes, policies: set[Repeat], repeat: Repeat) -> None:
    async with replica(answer) as first:
        assert await reaches_the_next(first, repeat) == (repeat in policies)


@pytest.mark.parametrize("status", [307, 409, 503])
async def test_a_refusal_keeps_status_and_body(status: int) -> None:
    async with replica(refusal(status)) as address, client(address) as broker:
        with pytest.raises(BrokerError) as caught:
            await broker.ask("GET", PATH, timeout_seconds=SECONDS, repeat=Repeat.IF_UNREACHED)
    assert (caught.value.status, caught.value.text, caught.value.is_sent) == (status, "no", True)


async def test_requests_of_one_owner_reach_one_replica_in_any_order_of_the_list() -> None:
    async with replica(refusal(401)) as one, replica(refusal(402)) as other:
        statuses = set()
        for addresses in ((one, other), (other, one)):
            async with (
                client(*addresses) as broker,
                broker.send("GET", PATH, near="owner", timeout_seconds=SECONDS) as response,
            ):
                statuses.add(response.status)
    assert len(statuses) == 1


async def test_an_answer_beyond_its_limit_is_not_read() -> None:
    async with replica(GOOD) as address, client(address) as broker:
        with pytest.raises(BrokerError, match="more than 5 bytes"):
            await broker.ask("GET", PATH, timeout_seconds=SECONDS, repeat=Repeat.IF_FAILED, limit=5)


@pytest.mark.parametrize("repeat", Repeat)
async def test_without_replicas_nothing_is_sent(repeat: Repeat) -> None:
    async with client() as broker:
        with pytest.raises(BrokerError, match="no broker replica is ready") as caught:
            await broker.ask("GET", PATH, timeout_seconds=SECONDS, repeat=repeat)
    assert not caught.value.is_sent
