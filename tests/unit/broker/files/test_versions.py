"""Memory of versions with many files and long paths."""

import asyncio
import tracemalloc
from dataclasses import replace
from hashlib import sha256
from threading import Lock
from typing import Any

import pytest
from tests.support.files_store import SPACE, FilesWorld, entry_of

from mcp_exec_broker.features.files.requests import FilesRefused
from mcp_exec_broker.features.files.usage import MAX_PATHS_BYTES
from mcp_exec_broker.features.files.workspace import versions as module
from mcp_exec_broker.features.files.workspace.commit import CommitLimits, check_limits
from mcp_exec_broker.features.files.workspace.manifest import (
    Location,
    Manifest,
    VersionFile,
    decode_manifest,
    index_files,
)
from mcp_exec_broker.features.files.workspace.versions import Versions, estimate_memory
from mcp_exec_common.broker.files import FilesReason
from mcp_exec_tools.workspace_files import MAX_PATH_BYTES, check_path

LIMITS = CommitLimits(max_bytes=2**30, max_files=20_000, max_file_bytes=2**28)
WIDE = "\N{GRINNING FACE}"


def wide_path(number: int) -> str:
    """Return a path of nearly as many bytes as are allowed."""
    path = f"{WIDE * 60}/" * 4 + f"{number:05d}{WIDE * 3}"
    check_path(path)
    assert len(path.encode()) > MAX_PATH_BYTES * 0.9
    return path


def build(version: int, paths: list[str]) -> Manifest:
    files = index_files(entry_of(path, path.encode()) for path in paths)
    contents = {entry.sha256: Location("p", 0, entry.size) for entry in files.values()}
    return Manifest(
        summary=replace(Manifest().summary, version=version, packs={"p": 1}), files=files, contents=contents
    )


def test_paths_are_counted_in_bytes_not_characters() -> None:
    empty = sha256().hexdigest()
    paths = [wide_path(number) for number in range(MAX_PATHS_BYTES // 984 + 20)]
    assert sum(map(len, paths)) < MAX_PATHS_BYTES // 2
    files = index_files(VersionFile(path, 0, empty, 0o644) for path in paths)
    with pytest.raises(FilesRefused, match=f"more than {MAX_PATHS_BYTES} bytes") as refused:
        check_limits(files, Manifest(), LIMITS)
    assert refused.value.reason is FilesReason.TOO_LARGE


def test_a_version_takes_no_more_memory_than_is_held_for_it() -> None:
    manifest = build(1, [wide_path(number) for number in range(1500)])
    tracemalloc.start()
    try:
        data = manifest.encode()
        encoding = tracemalloc.get_traced_memory()[1]
        start = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        decoded = decode_manifest(data)
        kept, peak = (size - start for size in tracemalloc.get_traced_memory())
    finally:
        tracemalloc.stop()
    assert decoded == manifest
    paths = sum(len(path.encode()) for path in manifest.files)
    assert len(data) < paths + 150 * 1500, "no character takes more bytes than in UTF-8"
    assert encoding < 3 * len(data)
    assert kept < estimate_memory(len(data))
    assert kept < 1.2 * manifest.memory
    assert peak < kept + 3 * len(data)


@pytest.mark.parametrize("length", [1, 60])
def test_the_estimate_holds_for_short_paths(length: int) -> None:
    data = build(1, [f"{number:0{length}d}" for number in range(3000)]).encode()
    tracemalloc.start()
    try:
        decoded = decode_manifest(data)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < estimate_memory(len(data))
    assert kept < 1.2 * decoded.memory


async def test_large_versions_are_decoded_one_at_a_time_and_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = FilesWorld()
    for number in range(1, 4):
        assert await world.store.versions.create(SPACE, "w", build(number, [f"{number}-{n}" for n in range(1000)]))
    decoding, decoded, lock = 0, list[int](), Lock()

    def decode(data: bytes) -> Manifest:
        nonlocal decoding
        with lock:
            decoding += 1
            assert decoding == 1
        manifest = decode_manifest(data)
        with lock:
            decoding -= 1
            decoded.append(manifest.version)
        return manifest

    monkeypatch.setattr(module, "decode_manifest", decode)
    versions = Versions(storage=world.storage)
    found = await asyncio.gather(*(versions.read(SPACE, "w", n % 3 + 1) for n in range(12)))
    assert sorted(decoded) == [1, 2, 3]
    assert {id(each) for each in found[0::3]} == {id(found[0])}


async def test_memory_is_held_before_a_version_is_read() -> None:
    world = FilesWorld()
    state = await world.store.states.open(SPACE, "data")
    first = build(1, [f"{n}" for n in range(1000)])
    assert await world.store.versions.create(SPACE, state.id, first)
    size = (await world.store.versions.list_sizes(SPACE, state.id))[1]
    held = list[int]()

    async def hold(size: int) -> None:
        held.append(size)

    async def refuse(size: int) -> None:
        raise FilesRefused(FilesReason.BUSY, "no memory")

    async def read(**more: Any) -> Manifest:
        return await world.store.workspaces.read(SPACE, state, **more)

    world.restart()
    with pytest.raises(FilesRefused, match="no memory"):
        await read(hold=refuse)
    await read(hold=hold)
    assert held == [estimate_memory(size)]
    await read(hold=refuse)  # it is in the cache
    with pytest.raises(FilesRefused, match="no memory"):
        await read(hold=refuse, keeps=True)
