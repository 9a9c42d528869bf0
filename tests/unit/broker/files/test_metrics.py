"""Metrics of the store of files."""

import pytest
from tests.support.files_store import OTHER, SPACE, FilesWorld
from tests.support.pages import DOCS

from mcp_exec_broker.features.files.collector import GRACE_SECONDS
from mcp_exec_broker.features.files.keys import OwnerSpace
from mcp_exec_broker.features.files.metrics import StoredTotals
from mcp_exec_broker.features.files.requests import FilesRefused

PREFIX = "mcp_exec_broker_files_"


def read(world: FilesWorld, name: str, **labels: str) -> float | None:
    return world.registry.get_sample_value(PREFIX + name, labels)


async def test_commits_are_counted_by_sender_and_result() -> None:
    world = FilesWorld()
    state = await world.store.states.open(SPACE, "data")
    for number, (files, base) in enumerate((({"a": b"1"}, 0), ({"b": b"2"}, 0), ({"a": b"1", "b": b"2"}, 2))):
        await world.commit(state, files, base=base, execution=f"uid-{number}")
    await world.commit(state, {"b": b"2"}, base=0, execution="uid-1")
    with pytest.raises(FilesRefused):
        await world.commit(state, {"a": b"3"}, base=0, execution="uid-4")
    await world.put(state, "a", b"4")
    for result in ("Committed", "Merged", "Unchanged", "Repeated", "Conflict"):
        assert read(world, "commits_total", source="execution", result=result) == 1, result
    assert read(world, "commits_total", source="request", result="Committed") == 1
    assert read(world, "commit_seconds_count", source="execution") == 5


async def test_the_collector_shows_what_namespaces_have_and_what_it_freed() -> None:
    world = FilesWorld()
    for space in (SPACE, OTHER, OwnerSpace("others", "0a" * 16)):
        state = await world.store.states.open(space, "data")
        writer = await world.store.workspaces.open_writer(space, state)
        async with writer:
            await writer.add_bytes(b"x" * 500)
    await world.store.collector.run()
    assert [read(world, "stored_bytes", namespace=each) for each in ("agents", "others")] == [1000, 500]
    assert read(world, "stored_objects", namespace="agents") == 2
    world.seconds += GRACE_SECONDS
    await world.store.collector.run()
    assert (read(world, "collected_bytes_total"), read(world, "collected_objects_total")) == (1500, 3)
    assert read(world, "collections_total", outcome="ok") == 2
    assert read(world, "stored_bytes", namespace="agents") == 0


async def test_namespaces_in_metrics_are_so_many_as_the_limit() -> None:
    world = FilesWorld()
    world.store.metrics.set_stored({f"n{number:04}": StoredTotals(bytes=1, objects=1) for number in range(1000)})
    assert read(world, "stored_bytes", namespace="other") == 800
    world.store.metrics.set_stored({})
    assert read(world, "stored_bytes", namespace="other") is None


async def test_contents_that_a_sandbox_fetches_are_counted() -> None:
    world = FilesWorld()

    async def parts():  # type: ignore[no-untyped-def]
        yield b"12345"

    assert [part async for part in world.store.metrics.fetching(parts())] == [b"12345"]
    assert (read(world, "fetched_bytes_total"), read(world, "fetch_seconds_count")) == (5, 1)


def test_the_page_lists_every_metric_of_the_store() -> None:
    page = (DOCS / "platform/files.md").read_text()
    listed = {line.split("`")[1] for line in page.splitlines() if line.startswith(f"| `{PREFIX}")}
    suffixes = {"counter": "_total"}
    assert listed == {each.name + suffixes.get(each.type, "") for each in FilesWorld().registry.collect()}
