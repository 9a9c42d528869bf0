"""Merged responses of the broker's replicas, even if one of them is malformed."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import aiohttp
import pytest
from tests.support.broker import FakeBroker

from mcp_exec_common.broker.client import BrokerClient, BrokerError
from mcp_exec_common.broker.grants import GrantSigner
from mcp_exec_common.sandbox_keys import SandboxKeys

KEY = b"the key of the sandboxes"
CALLS = {"toolCalls": {"total": 3, "failed": 1, "byTool": {"a.b": 3}, "bytesIn": 9}}


@pytest.fixture
async def replicas() -> AsyncIterator[list[FakeBroker]]:
    async with AsyncExitStack() as stack:
        brokers = [await stack.enter_async_context(FakeBroker(key=KEY).running()) for _ in range(3)]
        for broker in brokers:
            broker.call_answer = CALLS
        yield brokers


@pytest.fixture
async def client(replicas: list[FakeBroker]) -> AsyncIterator[BrokerClient]:
    async with aiohttp.ClientSession() as session:
        addresses = [f"127.0.0.1:{broker.port}" for broker in replicas]
        yield BrokerClient(
            session=session, signer=GrantSigner(keys=SandboxKeys(KEY)), sender="operator", addresses=lambda: addresses
        )


MALFORMED = [
    b"",
    b"[]",
    b"\xff",
    b'{"toolCalls": {"total": "many"}}',
    b'{"toolCalls": [1]}',
    b'{"approvals": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
]


async def test_calls_of_all_replicas_are_added(client: BrokerClient) -> None:
    calls = (await client.get_calls("uid-1")).tool_calls
    assert (calls.total, calls.failed, calls.by_tool, calls.complete) == (9, 3, {"a.b": 9}, True)


async def test_fields_of_a_later_release_are_ignored(client: BrokerClient, replicas: list[FakeBroker]) -> None:
    replicas[1].call_answer = {**CALLS, "surprise": 1, "toolCalls": {**CALLS["toolCalls"], "surprise": 1}}
    calls = (await client.get_calls("uid-1")).tool_calls
    assert (calls.total, calls.complete) == (9, True)


@pytest.mark.parametrize("close", [False, True])
@pytest.mark.parametrize("body", MALFORMED)
async def test_a_malformed_answer_fails_that_replica_alone(
    client: BrokerClient, replicas: list[FakeBroker], body: bytes, close: bool
) -> None:
    replicas[1].raw = body
    calls = (await (client.close_calls if close else client.get_calls)("uid-1")).tool_calls
    assert (calls.total, calls.complete) == (6, False)


async def test_malformed_answers_of_all_replicas_are_an_error(client: BrokerClient, replicas: list[FakeBroker]) -> None:
    for broker, body in zip(replicas, MALFORMED, strict=False):
        broker.raw = body
    with pytest.raises(BrokerError):
        await client.get_calls("uid-1")
