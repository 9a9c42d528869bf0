"""What the collector removes, and what it keeps; packs, quotas and lifetimes."""

import hashlib
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support.files_store import OTHER, SPACE, FilesWorld, entry_of, parts_of

from mcp_exec_api.wire.workspaces import WorkspaceSettings
from mcp_exec_broker.features.files.collector import GRACE_SECONDS
from mcp_exec_broker.features.files.keys import OwnerSpace
from mcp_exec_broker.features.files.requests import FilesRefused
from mcp_exec_broker.features.files.storage import VolumeStorage
from mcp_exec_broker.features.files.store import FilesStore
from mcp_exec_broker.features.files.usage import StoreLimits
from mcp_exec_broker.features.files.workspace.commit import PENDING_SECONDS
from mcp_exec_broker.features.files.workspace.manifest import index_files
from mcp_exec_common.broker.files import ArtifactAllowance, ArtifactHead, FilesReason

DAY = 24 * 3600.0


async def collect_twice(world: FilesWorld) -> None:
    """Let the collector look twice, so far apart that it removes what was unused."""
    await world.store.collector.run()
    world.seconds += GRACE_SECONDS
    await world.store.collector.run()


async def test_contents_that_no_version_has_are_removed_after_two_looks() -> None:
    world = FilesWorld()
    state = await world.store.states.open(SPACE, "data")
    for number in range(12):
        await world.commit(state, {"a": b"%d" % number}, base=number, execution=f"uid-{number}")
    packs = SPACE.packs(state.id)
    assert len(await world.list_keys(packs)) == 12
    await world.store.collector.run()
    assert len(await world.list_keys(packs)) == 12, "one look is not enough"
    await collect_twice(world)
    assert len(await world.list_keys(packs)) == 10
    assert len(await world.list_keys(SPACE.versions(state.id))) == 10
    assert await world.read(state, 3) == {"a": b"2"}


async def test_an_upload_is_not_removed_before_it_can_be_committed_for_the_last_time() -> None:
    world = FilesWorld()
    state = await world.store.states.open(SPACE, "data")
    await world.store.collector.run()
    await world.upload(state, "uid-1", [b"late"])
    await world.store.collector.run()
    world.seconds += PENDING_SECONDS
    await world.store.collector.run()
    assert (await world.commit(state, {"a": b"late"}, base=0, uploads=False)).version == 1
    world.seconds += GRACE_SECONDS
    await world.store.collector.run()
    assert await world.read(state) == {"a": b"late"}


async def test_an_upload_that_is_too_old_must_be_repeated() -> None:
    world = FilesWorld()
    state = await world.store.states.open(SPACE, "data")
    await world.upload(state, "uid-1", [b"late"])
    world.seconds += PENDING_SECONDS + 1
    with pytest.raises(FilesRefused) as caught:
        await world.commit(state, {"a": b"late"}, base=0, uploads=False)
    assert caught.value.reason is FilesReason.MISSING


async def test_a_workspace_is_deleted_after_its_last_use_and_then_its_data() -> None:
    world = FilesWorld(workspace_ttl_seconds=int(30 * DAY))
    kept = await world.store.states.set(SPACE, "kept", WorkspaceSettings(ttl_seconds=int(365 * DAY)))
    state = await world.store.states.open(SPACE, "data")
    await world.commit(state, {"a": b"1"}, base=0)
    world.seconds += 29 * DAY
    await world.store.states.touch(SPACE, state)
    world.seconds += 29 * DAY
    await collect_twice(world)
    assert [each.name for each in await world.store.states.list_states(SPACE)] == ["data", "kept"]
    world.seconds += 2 * DAY
    await collect_twice(world)
    assert [each.name for each in await world.store.states.list_states(SPACE)] == ["kept"]
    await collect_twice(world)
    assert await world.list_keys() == [f"{SPACE.states('kept')}/0000000001"]
    assert (await world.store.states.get(SPACE, "kept")).id == kept.id


async def test_artifacts_are_removed_after_their_lifetime() -> None:
    world = FilesWorld(artifact_ttl_seconds=60)
    head = ArtifactHead(name="a.txt", media_type="text/plain", size=1, sha256=hashlib.sha256(b"x").hexdigest())
    world.seconds = -(10**9)  # objects get their times from the machine
    id = await world.store.artifacts.add(SPACE, "uid-1", head, parts_of(b"x"), ArtifactAllowance())
    assert (await world.store.artifacts.open(SPACE, "uid-1", id)).head == head
    world.seconds = 10**9
    with pytest.raises(FilesRefused) as caught:
        await world.store.artifacts.open(SPACE, "uid-1", id)
    assert caught.value.reason is FilesReason.NO_ARTIFACT
    await world.store.collector.run()
    assert await world.list_keys() == []


async def test_the_owners_of_a_namespace_store_no_more_than_its_quota_in_all_and_get_it_back() -> None:
    world = FilesWorld(namespace_bytes=50_000)
    users = [OwnerSpace("agents", f"{user:032x}") for user in range(6)]
    reserves = [await world.store.usage.open(user) for user in users]
    for reserve in reserves[:5]:
        reserve(9000)
    with pytest.raises(FilesRefused, match="50000 in all") as caught:
        reserves[5](9000)
    assert caught.value.reason is FilesReason.TOO_LARGE
    (await world.store.usage.open(OwnerSpace("others", "0a" * 16)))(9000)
    world.store.usage.set_namespace("agents", 0)
    reserves[5](9000)


async def test_a_namespaces_bytes_are_what_the_collector_found() -> None:
    world = FilesWorld(namespace_bytes=50_000)
    state = await world.store.states.open(SPACE, "data")
    await world.commit(state, {"a": b"x" * 40_000}, base=0)
    with pytest.raises(FilesRefused, match="in all"):
        (await world.store.usage.open(OTHER))(20_000)
    await world.store.states.delete(SPACE, "data")
    await collect_twice(world)
    (await world.store.usage.open(OTHER))(20_000)


async def test_contents_leave_a_reserve_of_the_volume_so_that_workspaces_can_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 1_060_000
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=free, f_frsize=1, f_blocks=20_000_000))
    store = FilesStore.build(VolumeStorage(tmp_path), StoreLimits())
    state = await store.states.open(SPACE, "data")
    first, second = await store.usage.open(SPACE), await store.usage.open(OTHER)
    first(50_000)
    with pytest.raises(FilesRefused, match="almost full") as caught:
        second(20_000)
    assert caught.value.reason is FilesReason.UNAVAILABLE
    free = 0
    with pytest.raises(FilesRefused, match="almost full"):
        (await store.usage.open(SPACE))(1)
    await store.states.delete(SPACE, state.name)


async def test_the_workspaces_of_a_caller_are_those_of_all_its_users() -> None:
    world = FilesWorld()
    mine = [OwnerSpace("agents", f"{user:032x}", "0c" * 16) for user in range(3)]
    for space in mine:
        await world.store.states.open(space, "data")
        await world.store.states.open(space, "more")
    await world.store.states.open(OwnerSpace("agents", "0a" * 16, "0d" * 16), "data")
    await world.store.states.open(OwnerSpace("others", "0a" * 16, "0c" * 16), "data")
    await world.store.states.delete(mine[0], "data")
    restarted = world.build()
    assert await restarted.states.count_of_caller(mine[2]) == 5


async def test_an_owner_stores_no_more_than_its_quota_and_gets_it_back() -> None:
    world = FilesWorld(owner_bytes=20_000)
    state = await world.store.states.open(SPACE, "data")
    await world.commit(state, {"a": b"x" * 8000}, base=0)
    with pytest.raises(FilesRefused, match="allowed are 20000"):
        await world.commit(state, {"a": b"y" * 14_000}, base=1)
    assert await world.read(state) == {"a": b"x" * 8000}
    assert await world.store.usage.measure(OTHER) == 0
    await world.store.states.delete(SPACE, "data")
    await collect_twice(world)
    assert await world.store.usage.measure(SPACE) == 0
    again = await world.store.states.open(SPACE, "data")
    assert (await world.commit(again, {"a": b"y" * 14_000}, base=0, execution="uid-2")).version == 1


async def test_a_draft_becomes_the_workspace_that_others_created_meanwhile_at_this_replica() -> None:
    states = FilesWorld().store.states
    drafts = [await states.draft(SPACE, "data") for _ in range(2)]
    assert drafts[0] is drafts[1]
    assert await states.list_states(SPACE) == []
    opened = await states.open(SPACE, "data")
    assert {opened.id, *[(await states.keep(SPACE, draft)).id for draft in drafts]} == {drafts[0].id}


async def test_a_draft_does_not_bring_back_a_workspace_that_was_deleted() -> None:
    states = FilesWorld().store.states
    draft = await states.draft(SPACE, "data")
    await states.keep(SPACE, draft)
    await states.delete(SPACE, "data")
    with pytest.raises(FilesRefused, match="deleted meanwhile"):
        await states.keep(SPACE, draft)
    assert (await states.open(SPACE, "data")).id != draft.id
    with pytest.raises(FilesRefused, match="others created"):
        await states.keep(SPACE, draft)


async def test_a_workspace_does_not_expire_while_its_longest_run_lasts() -> None:
    world = FilesWorld()
    state = await world.store.states.set(SPACE, "data", WorkspaceSettings(ttl_seconds=3600))
    world.seconds += 3600 + 3600  # the code ran for an hour, and its calls waited for approvals as long
    await collect_twice_now(world)
    assert (await world.commit(state, {"a": b"1"}, base=0)).version == 1
    world.seconds += DAY
    await collect_twice(world)
    assert await world.store.states.list_states(SPACE) == []


async def collect_twice_now(world: FilesWorld) -> None:
    for _ in range(2):
        await world.store.collector.run()


async def test_a_version_whose_contents_were_lost_is_not_restored() -> None:
    world = FilesWorld()
    state = await world.store.states.open(SPACE, "data")
    await world.commit(state, {"a": b"1"}, base=0)
    (pack,) = await world.list_keys(SPACE.packs(state.id))
    await world.commit(state, {"b": b"2"}, base=1, execution="uid-2")
    await world.storage.delete([pack])
    with pytest.raises(FilesRefused, match="lost some of its contents") as caught:
        await world.store.workspaces.restore(SPACE, state, 1)
    assert caught.value.reason is FilesReason.NO_VERSION
    assert await world.read(state) == {"b": b"2"}


async def test_packs_that_few_contents_use_are_given_up() -> None:
    world = FilesWorld()
    state = await world.store.states.open(SPACE, "data")
    for number in range(40):
        files = {"kept": b"kept", **{f"f{part}": b"%d" % number * 500 for part in range(5)}}
        await world.commit(state, files, base=number, execution=f"uid-{number}")
    await collect_twice(world)
    stored = sum([item.size async for item in world.storage.list_objects(SPACE.packs(state.id))])
    assert stored < 11 * 1100
    assert (await world.read(state))["kept"] == b"kept"


async def test_many_small_files_take_few_syncs_on_a_volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    store = FilesStore.build(VolumeStorage(tmp_path), StoreLimits())
    state = await store.states.open(SPACE, "data")
    synced.clear()
    contents = {f"d{number % 10}/f{number}": b"%d" % number for number in range(2000)}
    writer = await store.workspaces.open_writer(SPACE, state)
    async with writer:
        for content in contents.values():
            await writer.add_bytes(content)
    files = index_files(entry_of(path, content) for path, content in contents.items())
    result = await store.workspaces.edit(SPACE, state, lambda _: files, contents=writer.stored)
    assert (result.files, len(synced) <= 20) == (2000, True)


async def test_who_creates_and_deletes_workspaces_all_the_time_waits_for_the_collector() -> None:
    world = FilesWorld(owner_workspaces=2)
    states = world.store.states
    for number in range(20):
        await states.open(SPACE, f"short-{number}")
        await states.delete(SPACE, f"short-{number}")
    with pytest.raises(FilesRefused, match=r"20 workspaces.*deleted.*hour") as refused:
        await states.open(SPACE, "short-20")
    assert refused.value.reason is FilesReason.BUSY
    await states.open(OTHER, "of-another-owner")

    await collect_twice(world)
    await states.open(SPACE, "short-20")
    assert len(await states.list_all(SPACE)) == 1
