"""Executions with workspaces and artifacts: grant, one writer at a time, what the status says at the end."""

import json
from collections.abc import AsyncIterator, Callable
from time import time
from typing import Any

import pytest
from tests.component.operator.brokers import SERVICE, running_broker
from tests.component.operator.conftest import run_until_killed
from tests.support.broker import FakeBroker
from tests.support.world import CEX, KEY, NAMESPACE, World

from mcp_exec_api.files import Owner
from mcp_exec_common.broker.files import FilesGrant
from mcp_exec_common.broker.grants import GrantSigner
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_operator.cluster import broker as discovery
from mcp_exec_operator.cluster.kube.api import OperatorApi

Operating = Callable[..., Any]
NOTES = {"name": "notes", "mode": "Write"}
SAVED = {"base": 3, "version": 4, "changedFiles": 2, "bytes": 10, "leftOut": 0}
ARTIFACT = {"id": "a1", "name": "sales.png", "mediaType": "image/png", "bytes": 5, "sha256": "0" * 64, "title": "Sales"}
OPEN = "say []"
"""Code that runs until the test ends it."""


@pytest.fixture
async def broker(world: World) -> AsyncIterator[FakeBroker]:
    async with running_broker(world) as made:
        yield made


@pytest.fixture
def equipped(operating: Operating, broker: FakeBroker) -> Operating:
    """Run an operator with the broker."""
    return lambda **changes: operating(broker_service=SERVICE, **changes)


def end(world: World, name: str, **fields: Any) -> None:
    """End an execution whose code is open."""
    world.supervisor_of(name).say("end", phase="Succeeded", runMs=0.5, **fields)


def code(*artifacts: dict[str, Any], **fields: Any) -> str:
    """Return code that ends at once with these artifacts and fields of the event `end`."""
    events = [{"kind": "artifact", **artifact} for artifact in artifacts]
    return "say " + json.dumps([*events, {"kind": "end", "phase": "Succeeded", "runMs": 0.5, **fields}])


async def test_a_job_has_a_grant_of_its_owners_workspace_and_every_job_one_of_artifacts(
    world: World, equipped: Operating
) -> None:
    world.pool(warm={"min": 2})
    async with equipped():
        await world.warm(2)
        uid = world.execution("one", OPEN, caller="team-a", user="ann", workspace=NOTES, timeoutSeconds=20)
        world.execution("two", OPEN)
        await world.until(lambda: len(world.ran) == 2)
        jobs = {name: world.supervisor_of(name).job or {} for name in ("one", "two")}
        for name in jobs:
            end(world, name)
            await world.finished(name)
    files = jobs["one"]["files"]
    assert (files["url"], files["workspace"], files["maxArtifacts"]) == ("http://127.0.0.1:1", NOTES, 50)
    grant = GrantSigner(keys=SandboxKeys(KEY)).read(FilesGrant, files["token"])
    assert grant.owner == Owner(namespace=NAMESPACE, caller="team-a", user="ann").digest
    assert grant.workspace is not None
    assert (grant.execution, grant.workspace.name, grant.workspace.mode) == (uid, "notes", "Write")
    assert 20 + 120 < grant.expires - time() < 20 + 300
    other = GrantSigner(keys=SandboxKeys(KEY)).read(FilesGrant, jobs["two"]["files"]["token"])
    assert "workspace" not in jobs["two"]["files"]
    assert (other.workspace, other.artifacts is not None) == (None, True)


async def test_nobody_has_no_workspace(world: World, equipped: Operating) -> None:
    world.pool()
    async with equipped():
        for number, mode in enumerate(("Write", "Read")):
            world.execution(f"e{number}", workspace={"name": "notes", "mode": mode}, account="")
            ended = await world.finished(f"e{number}")
            assert (ended["phase"], ended["reason"]) == ("Failed", "Rejected")
            assert ended["error"]["message"].startswith("spec.workspace: nothing proves who created this execution")
    assert world.ran == []


async def test_writers_take_turns_and_readers_do_not_wait(world: World, equipped: Operating) -> None:
    world.pool(warm={"min": 3})
    async with equipped():
        await world.warm(3)
        world.execution("first", OPEN, workspace=NOTES)
        await world.until(lambda: len(world.ran) == 1)
        world.execution("second", OPEN, workspace={"name": "notes"})
        world.execution("reader", code(workspace={"base": 3}), workspace={"name": "notes", "mode": "Read"})
        world.execution("other", code(workspace=SAVED), workspace=NOTES, user="ann")
        assert (await world.finished("reader"))["workspace"] == {"base": 3}
        assert (await world.finished("other"))["phase"] == "Succeeded"
        await world.until(lambda: world.status("second").get("queue"))
        waiting = world.status("second")
        end(world, "first", workspace=SAVED)
        status = await world.finished("first")
        await world.until(lambda: len(world.ran) == 4)
        end(world, "second")
        assert (await world.finished("second"))["phase"] == "Succeeded"
    assert status["workspace"] == SAVED
    assert (waiting["phase"], waiting["reason"], waiting["queue"]) == (
        "Pending",
        "WorkspaceBusy",
        {"position": 1, "of": 1},
    )
    assert waiting["conditions"][0]["message"] == "another execution writes to workspace notes; position 1 of 1"


async def test_a_writer_that_is_cancelled_while_it_waits_gives_its_place_up(world: World, equipped: Operating) -> None:
    world.pool(warm={"min": 2})
    async with equipped():
        await world.warm(2)
        world.execution("first", OPEN, workspace=NOTES)
        await world.until(lambda: len(world.ran) == 1)
        world.execution("second", OPEN, workspace=NOTES)
        world.execution("third", code(), workspace=NOTES)
        await world.until(lambda: world.status("third").get("queue"))
        world.merge(CEX, "second", {"spec": {"cancelRequested": True}, "metadata": {"generation": 2}})
        assert (await world.finished("second"))["phase"] == "Cancelled"
        end(world, "first")
        assert (await world.finished("third"))["phase"] == "Succeeded"


async def test_a_writer_whose_wait_fails_waits_again(
    world: World, equipped: Operating, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[str] = []
    write = OperatorApi.replace_status

    async def refuse_first(*arguments: Any, what: str, **options: Any) -> Any:
        if what == "pending" and not refused:
            refused.append(what)
            raise ApiError(code=422, reason="Invalid")
        return await write(*arguments, what=what, **options)

    monkeypatch.setattr(OperatorApi, "replace_status", refuse_first)
    world.pool(warm={"min": 2})
    async with equipped():
        await world.warm(2)
        world.execution("first", OPEN, workspace=NOTES)
        await world.until(lambda: len(world.ran) == 1)
        world.execution("second", code(), workspace=NOTES)
        await world.until(lambda: world.status("second").get("queue"))
        assert (refused, len(world.ran)) == (["pending"], 1)
        end(world, "first")
        assert (await world.finished("second"))["phase"] == "Succeeded"


async def test_the_next_operator_lets_no_other_writer_in(world: World, broker: FakeBroker, equipped: Operating) -> None:
    world.pool(warm={"min": 2})
    world.execution("first", OPEN, workspace=NOTES)
    await run_until_killed(world, 10_000, lambda: len(world.ran) == 1, broker_service=SERVICE)
    world.execution("second", code(), workspace=NOTES)
    async with equipped():
        await world.until(lambda: world.status("second").get("queue"))
        assert world.status("second")["reason"] == "WorkspaceBusy"
        end(world, "first", workspace=SAVED)
        assert (await world.finished("first"))["workspace"] == SAVED
        assert (await world.finished("second"))["phase"] == "Succeeded"


async def test_a_lost_writer_loses_its_grant_before_the_next_begins(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    world.pool(warm={"min": 2})
    async with equipped():
        await world.warm(2)
        uid = world.execution("first", OPEN, workspace=NOTES)
        await world.until(lambda: len(world.ran) == 1)
        world.kill_pod(world.status("first")["podName"], {"phase": "Failed"})
        status = await world.finished("first")
        world.execution("second", code(), workspace=NOTES)
        assert (await world.finished("second"))["phase"] == "Succeeded"
    assert (status["reason"], "workspace" in status) == ("SandboxLost", False)
    assert uid in broker.closed


async def test_what_a_writer_has_uploaded_and_not_saved_is_forgotten_at_its_end(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    world.pool(warm={"min": 2})
    refused = {"base": 3, "reason": "WorkspaceTooLarge", "message": "there are too many files"}
    async with equipped():
        uid = world.execution("writer", code(workspace=refused), workspace=NOTES)
        world.execution("reader", code(workspace={"base": 3}), workspace={"name": "notes", "mode": "Read"})
        for name in ("writer", "reader"):
            await world.finished(name)
        await world.until(lambda: broker.closed_files)
    assert (broker.closed_files, broker.closed) == ([uid], [])


async def test_changes_that_were_not_saved_are_the_reason_of_a_run_that_succeeded(
    world: World, equipped: Operating
) -> None:
    world.pool(warm={"min": 2})
    failed = {"base": 3, "reason": "WorkspaceConflict", "message": "version 4 is newer"}
    async with equipped():
        await world.warm(2)
        world.execution("one", code(workspace=failed, stdoutBytes=3), workspace=NOTES)
        status = await world.finished("one")
        error = {"type": "ValueError", "message": "no"}
        world.execution("two", code(workspace=failed, phase="Failed", reason="UserError", error=error), workspace=NOTES)
        raised = await world.finished("two")
    assert (status["phase"], status["reason"]) == ("Succeeded", "WorkspaceConflict")
    assert status["workspace"] == failed
    assert status["output"]["stdoutBytes"] == 3
    assert status["conditions"][-1]["message"] == "version 4 is newer"
    assert (raised["reason"], raised["workspace"]) == ("UserError", failed)


async def test_artifacts_are_in_the_status_bounded_and_without_what_code_forged(
    world: World, equipped: Operating
) -> None:
    world.pool(warm={"min": 2})
    many = [{**ARTIFACT, "id": f"a{number}", "preview": "x" * 2000} for number in range(60)]
    forged = {"base": 1, "reason": "QueueFull", "message": "m" * 1000}
    async with equipped():
        await world.warm(2)
        world.execution("one", code(ARTIFACT, {**ARTIFACT, "name": "again"}))
        assert (await world.finished("one"))["artifacts"] == [ARTIFACT]
        world.execution("two", code(*many, workspace=forged), workspace=NOTES)
        status = await world.finished("two")
        world.execution("three", code(workspace=SAVED))
        assert "workspace" not in await world.finished("three")
    assert len(status["artifacts"]) == 50
    assert sum(len(each.get("preview", "")) for each in status["artifacts"]) <= 32 * 1024
    assert status["reason"] == status["workspace"]["reason"] == "WorkspaceUnavailable"


async def test_without_a_broker_a_workspace_is_rejected_and_nothing_else(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        await world.warm(1)
        world.execution("one", workspace=NOTES)
        rejected = await world.finished("one")
        world.execution("two")
        assert (await world.finished("two"))["phase"] == "Succeeded"
    assert (rejected["reason"], rejected["error"]["message"]) == (
        "Rejected",
        "spec.workspace: there are no workspaces, since this installation has no broker",
    )


async def test_a_broker_without_pods_makes_workspaces_unavailable_and_nothing_else(
    world: World, operating: Operating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "_CHECK_SECONDS", 0.002)
    world.pool(warm={"min": 2})
    async with operating(broker_service=SERVICE):
        await world.warm(2)
        world.execution("one", workspace=NOTES)
        assert (await world.finished("one"))["reason"] == "WorkspaceUnavailable"
        world.execution("two")
        assert (await world.finished("two"))["phase"] == "Succeeded"
