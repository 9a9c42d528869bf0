"""A client of the broker and what may answer it in the broker's place."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from tests.support.attacks import ANSWERS, EVERYWHERE, MIB, Play
from tests.support.broker import FakeBroker
from tests.support.constants import DEADLINE, SANDBOX_KEY

from mcp_exec_common.broker.client import MAX_CALLS_BYTES, BrokerClient, BrokerError
from mcp_exec_common.broker.grants import GrantSigner
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_common.supervisor.client import SupervisorClient

SECONDS = 0.2
MAX_PEAK_BYTES = 3 * MAX_CALLS_BYTES


@asynccontextmanager
async def connected(broker: FakeBroker, *, key: bytes = SANDBOX_KEY) -> AsyncIterator[BrokerClient]:
    """A client as operator and gateway have it."""
    async with asyncio.timeout(DEADLINE), broker.running(), SupervisorClient.connect(keys=SandboxKeys(key)) as client:
        yield BrokerClient(
            session=client.broker_session,
            signer=GrantSigner(keys=SandboxKeys(key)),
            sender="operator",
            addresses=lambda: [f"127.0.0.1:{broker.port}"],
        )


@pytest.mark.parametrize("name", [*EVERYWHERE, *ANSWERS])
async def test_no_answer_of_a_broker_harms_its_client(name: str) -> None:
    broker = FakeBroker(key=SANDBOX_KEY)
    plays = EVERYWHERE | ANSWERS
    broker.attack = lambda request: plays[name] if request.path.startswith("/v1/executions") else None
    async with connected(broker) as client:
        tracemalloc.start()
        try:
            with pytest.raises(BrokerError):
                await client.get_calls("uid-1", timeout_seconds=SECONDS)
            assert tracemalloc.get_traced_memory()[1] < MAX_PEAK_BYTES
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("name", [*EVERYWHERE, *ANSWERS])
async def test_whoever_is_not_the_broker_gets_no_service_token(name: str) -> None:
    plays, tokens = EVERYWHERE | ANSWERS, []

    def attack(request: web.Request) -> Play:
        tokens.extend(request.headers.getall("Authorization", []))
        return plays[name]

    broker = FakeBroker(key=SANDBOX_KEY)
    broker.attack = attack
    async with connected(broker) as client:
        for close in (client.get_calls, client.close_calls):
            with pytest.raises(BrokerError):
                await close("uid-1", timeout_seconds=SECONDS)
    assert tokens == []


async def test_a_broker_of_another_release_is_not_trusted() -> None:
    broker = FakeBroker(key=b"the key of another release")
    async with connected(broker) as client:
        with pytest.raises(BrokerError, match="wrong proof"):
            await client.get("/v1/namespaces/agents/catalog")
    assert broker.asked == []


def test_an_attack_offers_more_than_a_client_of_the_broker_takes() -> None:
    assert 96 * MIB > MAX_PEAK_BYTES
