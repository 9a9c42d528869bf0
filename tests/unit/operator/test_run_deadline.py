"""The time limit of a run: waits for approvals extend it, and a loss shortens it."""

import asyncio
from typing import cast

import pytest

from mcp_exec_common.supervisor.client import SupervisorConnection
from mcp_exec_common.supervisor.protocol import SandboxError
from mcp_exec_operator.core.executions.deadline import RunDeadline


class Sandbox:
    """Counts the seconds by which its clock is extended."""

    def __init__(self) -> None:
        self.extended: list[tuple[str, float]] = []
        self.is_broken = False

    async def extend(self, uid: str, seconds: float) -> None:
        if self.is_broken:
            raise SandboxError("gone")
        self.extended.append((uid, seconds))


def connect(sandbox: Sandbox) -> SupervisorConnection:
    return cast(SupervisorConnection, sandbox)


async def test_a_run_ends_at_its_limit() -> None:
    deadline = RunDeadline(uid="a", seconds=0.0)
    with pytest.raises(TimeoutError):
        async with deadline.running(connect(Sandbox())):
            await asyncio.Event().wait()
    assert deadline.over


async def test_an_extension_from_before_the_run_counts_and_reaches_the_sandbox_once_it_is_known() -> None:
    sandbox, deadline = Sandbox(), RunDeadline(uid="a", seconds=0.0)
    assert not await deadline.extend(60.0)
    async with deadline.running(connect(sandbox)):
        await asyncio.sleep(0)
        assert await deadline.extend(90.0)
    assert sandbox.extended == [("a", 90.0)]


async def test_a_cut_wins_over_an_extension_and_a_sandbox_without_an_answer_is_not_extended() -> None:
    sandbox, deadline = Sandbox(), RunDeadline(uid="a", seconds=60.0)
    sandbox.is_broken = True

    async def run() -> None:
        async with deadline.running(connect(sandbox)):
            deadline.cut(0.0)
            assert not await deadline.extend(600.0)
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await run()


async def test_what_comes_after_the_end_changes_nothing() -> None:
    deadline = RunDeadline(uid="a", seconds=60.0)
    async with deadline.running(connect(Sandbox())):
        pass
    deadline.cut(0.0)
    assert deadline.over
