"""Contents that wait for their commits: nobody takes the places of others."""

import pytest
from tests.support.files_store import SPACE, FilesWorld

from mcp_exec_broker.features.files.requests import FilesRefused
from mcp_exec_broker.features.files.workspace.commit import PENDING_SECONDS, PendingUploads
from mcp_exec_broker.features.files.workspace.manifest import Location
from mcp_exec_common.broker.files import FilesReason

SECONDS = [0.0]


def contents_of(execution: str, count: int) -> dict[str, Location]:
    return {f"{execution}-{number}": Location("pack", number, 1) for number in range(count)}


def add(pending: PendingUploads, execution: str, count: int, *, namespace: str = "agents") -> None:
    found = contents_of(execution, count)
    pending.add(execution, "notes", found, namespace=namespace, started=pending.clock())


async def test_a_refused_commit_leaves_no_contents_behind() -> None:
    world = FilesWorld(workspace_files=10)
    state = await world.store.states.open(SPACE, "data")
    files = {str(number): b"%d" % number for number in range(10)}
    with pytest.raises(FilesRefused) as caught:
        await world.commit(state, files | {"same": b"1"}, base=0)
    assert caught.value.reason is FilesReason.TOO_LARGE
    assert world.store.pending.count() == 0
    await world.commit(state, {"a": b"1"}, base=0)
    with pytest.raises(FilesRefused) as caught:
        await world.commit(state, {"a": b"2"}, base=0, execution="uid-2")
    assert (caught.value.reason, world.store.pending.count()) == (FilesReason.CONFLICT, 0)


async def test_a_commit_that_misses_contents_keeps_those_that_were_uploaded() -> None:
    world = FilesWorld()
    state = await world.store.states.open(SPACE, "data")
    await world.upload(state, "uid-1", [b"here"])
    with pytest.raises(FilesRefused) as caught:
        await world.commit(state, {"a": b"here", "b": b"not yet"}, base=0, uploads=False)
    assert (caught.value.reason, world.store.pending.count()) == (FilesReason.MISSING, 1)


def test_an_execution_has_no_more_contents_than_a_version_has_files() -> None:
    pending = PendingUploads(most=100)
    add(pending, "one", 100)
    add(pending, "one", 100)
    with pytest.raises(FilesRefused) as caught:
        add(pending, "one", 101)
    assert (caught.value.reason, pending.count()) == (FilesReason.TOO_LARGE, 100)


def test_a_namespace_leaves_room_for_others_and_gets_its_own_back() -> None:
    pending = PendingUploads(most=50_000, clock=lambda: SECONDS[0])
    SECONDS[0] = 0.0
    add(pending, "one", 50_000)
    add(pending, "two", 50_000)
    with pytest.raises(FilesRefused) as caught:
        add(pending, "three", 1)
    assert caught.value.reason is FilesReason.BUSY
    add(pending, "other", 50_000, namespace="other")
    SECONDS[0] = PENDING_SECONDS + 1
    add(pending, "three", 50_000)
    assert pending.count() == 50_000
