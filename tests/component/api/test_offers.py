"""Dispatch of code to a real supervisor before its run is confirmed."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.support.constants import DEADLINE, POD, SANDBOX_KEY

from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_common.supervisor.client import PendingRun, SupervisorClient, SupervisorConnection
from mcp_exec_common.supervisor.protocol import Job, SandboxError, SandboxUsed

JOB = Job(id="uid-1", code="print('ran')", context={}, timeout_seconds=5, output_bytes=4096)


@pytest.fixture
async def sandbox(supervisor_port: int) -> AsyncIterator[SupervisorConnection]:
    async with (
        SupervisorClient.connect(keys=SandboxKeys(SANDBOX_KEY), port=supervisor_port) as sandboxes,
        asyncio.timeout(DEADLINE),
    ):
        yield sandboxes.get_connection(namespace="agents", pod=POD, address="127.0.0.1")


async def kinds(offer: PendingRun) -> list[str]:
    return [event.type async for event in offer.run()]


async def test_a_job_runs_once_its_offer_is_confirmed_and_not_before(sandbox: SupervisorConnection) -> None:
    offer = sandbox.prepare_run(JOB, timeout_seconds=DEADLINE)
    assert await sandbox.get_execution() == ("idle", None)
    assert await kinds(offer) == ["status", "stdout", "end"]
    assert (await sandbox.get_execution())[1] == "uid-1"


async def test_an_offer_that_is_withdrawn_leaves_the_sandbox_unused(sandbox: SupervisorConnection) -> None:
    offer = sandbox.prepare_run(JOB, timeout_seconds=DEADLINE)
    assert await sandbox.get_execution() == ("idle", None)
    offer.withdraw()
    assert await sandbox.get_execution() == ("idle", None)
    assert await kinds(sandbox.prepare_run(JOB, timeout_seconds=DEADLINE)) == ["status", "stdout", "end"]


async def test_a_used_sandbox_refuses_an_offer(sandbox: SupervisorConnection) -> None:
    assert [event async for event in sandbox.run(JOB, timeout_seconds=DEADLINE)][-1].type == "end"
    with pytest.raises(SandboxUsed):
        await kinds(sandbox.prepare_run(JOB, timeout_seconds=DEADLINE))


async def test_an_offer_without_a_supervisor_fails_at_its_confirmation(supervisor_port: int) -> None:
    async with SupervisorClient.connect(keys=SandboxKeys(b"another key"), port=supervisor_port) as sandboxes:
        stranger = sandboxes.get_connection(namespace="agents", pod=POD, address="127.0.0.1")
        with pytest.raises(SandboxError, match="wrong proof"):
            await kinds(stranger.prepare_run(JOB, timeout_seconds=DEADLINE))


async def test_two_offers_at_once_run_one_job(sandbox: SupervisorConnection) -> None:
    offers = [sandbox.prepare_run(JOB, timeout_seconds=DEADLINE) for _ in range(2)]
    ends = await asyncio.gather(*(kinds(offer) for offer in offers), return_exceptions=True)
    assert sorted(type(end).__name__ for end in ends) == ["SandboxUsed", "list"]
