"""Interrupts while an execution is created, and events that end early."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from mcp_exec_client.cli.backends.backend import Decision, ExecutionDraft, Selection
from mcp_exec_client.cli.exit_codes import ExitCode
from mcp_exec_client.cli.following.follower import Follower, submit
from mcp_exec_client.cli.options import CommandError, Object
from mcp_exec_client.cli.printer import EventPrinter


class FakeBackend:
    """A backend whose requests are answered when the test says so."""

    streams_output = True
    namespace = None

    def __init__(self, *events: Object) -> None:
        self.events = events
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()
        self.cancelled: list[str] = []

    async def submit(self, draft: ExecutionDraft) -> Object:
        self.asked.set()
        await self.answer.wait()
        return {"name": "made"}

    async def follow(self, name: str) -> AsyncGenerator[Object, None]:
        for event in self.events:
            yield event

    async def cancel(self, name: str) -> Object:
        self.cancelled.append(name)
        return {}

    async def withdraw(self, name: str) -> str:
        raise NotImplementedError

    async def find_unserved(self) -> str | None:
        return None

    async def get(self, name: str, *, with_code: bool = False) -> Object:
        raise NotImplementedError

    async def list_executions(self, selection: Selection) -> list[Object]:
        raise NotImplementedError

    async def list_approvals(self, name: str | None) -> list[Object]:
        raise NotImplementedError

    async def decide(self, name: str, approval: str, decision: Decision) -> Object:
        raise NotImplementedError

    async def search_tools(self, query: str, *, limit: int, schemas: bool = False) -> list[Object]:
        raise NotImplementedError


async def test_an_execution_whose_creation_is_interrupted_is_cancelled() -> None:
    backend = FakeBackend()
    submitting = asyncio.create_task(submit(backend, ExecutionDraft(spec={"code": "1"})))
    await backend.asked.wait()
    submitting.cancel()
    backend.answer.set()
    with pytest.raises(asyncio.CancelledError):
        await submitting
    assert backend.cancelled == ["made"]


def follower(backend: FakeBackend, *, cancels: bool = True) -> Follower:
    return Follower(backend=backend, name="made", printer=EventPrinter("made", program="mcp-exec"), cancels=cancels)


async def test_events_that_end_early_are_an_error_of_the_gateway() -> None:
    with pytest.raises(CommandError, match="the events of made ended early") as error:
        await follower(FakeBackend({"type": "status", "phase": "Running"})).run(seconds=60)
    assert error.value.code is ExitCode.UNAVAILABLE


async def test_an_execution_that_does_not_end_in_time_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = FakeBackend()

    async def follow(name: str) -> AsyncGenerator[Object, None]:
        await asyncio.Event().wait()
        yield {}

    monkeypatch.setattr(backend, "follow", follow)
    with pytest.raises(CommandError, match="made has not ended within 0 s; it goes on"):
        await follower(backend).run(seconds=0)
    assert backend.cancelled == []


@pytest.mark.parametrize("cancels", [True, False])
async def test_a_reader_that_is_gone_cancels_what_the_command_started(
    cancels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = FakeBackend({"type": "stdout", "text": "x"})
    line = follower(backend, cancels=cancels)

    def fail(event: Object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(line.printer, "show", fail)
    with pytest.raises(BrokenPipeError):
        await line.run(seconds=60)
    assert backend.cancelled == (["made"] if cancels else [])
