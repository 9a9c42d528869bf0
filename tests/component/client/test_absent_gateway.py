"""A gateway that goes away during a run: the client goes on when it is back, and says what it leaves when it is not."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.component.gateway.commands import call
from tests.support.absent_gateway import ABSENCES, Absence, AbsentGateway, failing_names

from mcp_exec_client import AsyncClient, Client, RetryPolicy
from mcp_exec_client.errors import GatewayUnreachable, McpExecError
from mcp_exec_client.transport import build_transport

STREAMED = ["1.0", "2.1", "3.2", "4.2"]
Use = Callable[[str], Coroutine[Any, Any, object]]


async def streams(url: str) -> object:
    async with AsyncClient(url, api_key="k") as client:
        return [event.id async for event in client.stream("e1")]


async def runs(url: str) -> object:
    async with AsyncClient(url, api_key="k") as client:
        return (await client.run("print(1)")).succeeded


async def waits(url: str) -> object:
    async with AsyncClient(url, api_key="k") as client:
        return (await client.wait((await client.submit("print(1)")).name)).succeeded


async def runs_in_a_session(url: str) -> object:
    async with AsyncClient(url, api_key="k") as client, client.session("s", keep=True) as session:
        return (await session.run("print(1)")).succeeded


async def streams_blocking(url: str) -> object:
    def use() -> object:
        with Client(url, api_key="k") as client:
            return [event.id for event in client.stream("e1")]

    return await asyncio.to_thread(use)


async def runs_blocking(url: str) -> object:
    def use() -> object:
        with Client(url, api_key="k") as client:
            return client.run("print(1)").succeeded

    return await asyncio.to_thread(use)


USES: dict[str, tuple[Use, object]] = {
    "stream": (streams, STREAMED),
    "run": (runs, True),
    "wait": (waits, True),
    "session": (runs_in_a_session, True),
    "blocking stream": (streams_blocking, STREAMED),
    "blocking run": (runs_blocking, True),
}


@pytest.fixture
def attach(monkeypatch: pytest.MonkeyPatch) -> Callable[[AbsentGateway], None]:
    """Let all clients wait by the gateway's clock, and find its name as long as it has one."""

    def attach_to(gateway: AbsentGateway) -> None:
        def build(*arguments: Any) -> Any:
            transport = build_transport(*arguments)
            transport.sleep = gateway.sleep
            return transport

        monkeypatch.setattr("mcp_exec_client.client.build_transport", build)
        monkeypatch.setattr(socket, "getaddrinfo", failing_names(gateway, socket.getaddrinfo))

    return attach_to


@pytest.mark.parametrize("absence", ABSENCES)
@pytest.mark.parametrize(("use", "result"), USES.values(), ids=USES)
async def test_a_client_outlasts_a_gateway_that_is_away_for_forty_seconds(
    use: Use, result: object, absence: Absence, attach: Callable[[AbsentGateway], None]
) -> None:
    async with AbsentGateway(absence, away_seconds=40).running() as gateway:
        attach(gateway)
        assert await use(gateway.url) == result
    assert 40 <= sum(gateway.delays) <= 60


async def test_a_stream_goes_on_after_the_last_event(attach: Callable[[AbsentGateway], None]) -> None:
    async with AbsentGateway("refused", away_seconds=40).running() as gateway:
        attach(gateway)
        assert await streams(gateway.url) == STREAMED
    assert gateway.requests == ["GET /v1/executions/e1/events", "GET /v1/executions/e1/events 2.1"]


@pytest.mark.parametrize("absence", ABSENCES)
@pytest.mark.parametrize("use", [use for use, _ in USES.values()], ids=USES)
async def test_an_error_after_a_minute_names_the_run_and_that_it_goes_on(
    use: Use, absence: Absence, attach: Callable[[AbsentGateway], None]
) -> None:
    async with AbsentGateway(absence, away_seconds=float("inf")).running() as gateway:
        attach(gateway)
        with pytest.raises(McpExecError, match=r"; execution e1 goes on$") as caught:
            await use(gateway.url)
    assert caught.value.execution == "e1"
    assert 40 <= sum(gateway.delays) <= 60


async def test_a_command_goes_on_when_its_gateway_is_back(
    attach: Callable[[AbsentGateway], None], capsys: pytest.CaptureFixture[str]
) -> None:
    async with AbsentGateway("refused", away_seconds=40).running() as gateway:
        attach(gateway)
        ended = await call(capsys, "run", "-c", "print(1)", "--gateway", gateway.url, "--api-key", "k")
    assert (ended.code, ended.out, ended.err) == (0, "12", "")


async def test_a_command_whose_gateway_stays_away_says_that_its_run_goes_on(
    attach: Callable[[AbsentGateway], None], capsys: pytest.CaptureFixture[str]
) -> None:
    async with AbsentGateway("refused", away_seconds=float("inf")).running() as gateway:
        attach(gateway)
        ended = await call(capsys, "run", "-c", "print(1)", "--gateway", gateway.url, "--api-key", "k")
    assert ended.code == 4
    assert ended.last.endswith("; execution e1 goes on")


@pytest.mark.parametrize(("policy", "attempts"), [(RetryPolicy(attempts=1), 1), (RetryPolicy(attempts=3), 3)])
async def test_a_number_of_attempts_holds_while_a_gateway_is_away(
    policy: RetryPolicy, attempts: int, attach: Callable[[AbsentGateway], None]
) -> None:
    async with AbsentGateway("refused", away_seconds=float("inf")).running() as gateway:
        attach(gateway)
        async with AsyncClient(gateway.url, api_key="k", retries=policy) as client:
            with pytest.raises(GatewayUnreachable):
                await client.run("print(1)")
    assert len(gateway.delays) == attempts - 1


async def test_an_address_that_has_never_answered_is_given_up_within_seconds(
    attach: Callable[[AbsentGateway], None],
) -> None:
    gateway = AbsentGateway("refused", away_seconds=0)
    attach(gateway)
    for use, _ in USES.values():
        gateway.delays.clear()
        with pytest.raises(GatewayUnreachable):
            await use(gateway.url)
        assert len(gateway.delays) == 5
        assert sum(gateway.delays) < 7
