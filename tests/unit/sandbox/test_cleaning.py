"""Emptying of folders, and the places of a container that have to be emptied."""

import asyncio
import os

import pytest

from mcp_exec_sandbox.supervisor import cleaning
from mcp_exec_sandbox.supervisor.cleaning import Emptying, NotCleaned, WritablePlaces

LATER, PAST = 1e12, 0.0


def make_tree(folder, *, width, depth):
    for name in range(width):
        inner = folder / f"d{name}"
        inner.mkdir()
        (inner / "file").touch()
        if depth > 1:
            make_tree(inner, width=width, depth=depth - 1)


async def test_a_wide_and_deep_tree_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(cleaning, "MAX_FOLDERS", 3)
    make_tree(tmp_path, width=5, depth=3)
    (tmp_path / "link").symlink_to("/")
    os.setxattr(tmp_path, "user.left", b"x")
    await Emptying(tmp_path, deadline=LATER).run()
    assert list(tmp_path.iterdir()) == []
    assert os.listxattr(tmp_path) == []


async def test_emptying_ends_in_time_and_lets_others_run(tmp_path):
    for number in range(2 * cleaning.ENTRIES_PER_TURN):
        (tmp_path / str(number)).touch()
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.ensure_future(count())
    with pytest.raises(NotCleaned, match="more entries than can be removed in time"):
        await Emptying(tmp_path, deadline=PAST).run()
    other.cancel()
    assert turns == 1
    assert len(list(tmp_path.iterdir())) > 0


async def test_a_place_that_is_gone_is_no_clean_place(tmp_path):
    with pytest.raises(NotCleaned, match="can't be emptied"):
        await Emptying(tmp_path / "missing", deadline=LATER).run()


def write_mounts(path, *lines):
    path.write_text("".join(f"{number} 0 0:{number} / {line}\n" for number, line in enumerate(lines)))
    return path


async def test_all_writable_mounts_of_a_container_are_places(tmp_path):
    shared, extra, file, own, closed = (tmp_path / name for name in ("shm", "ex tra", "log", "own", "closed"))
    for folder in (shared, extra, own, closed):
        folder.mkdir()
    file.write_text("left")
    mounts = write_mounts(
        tmp_path / "mountinfo",
        "/ ro,relatime - overlay overlay rw,lowerdir=/x",
        f"{shared} rw,nosuid shared:1 - tmpfs shm rw",
        f"{tmp_path}/ex\\040tra rw master:1 - ext4 /dev/sda rw",
        f"{file} rw - ext4 /dev/sda rw",
        f"{closed} ro - ext4 /dev/sda rw",
        "/proc rw - proc proc rw",
        "/sys/fs/cgroup rw - cgroup2 cgroup rw",
        "nonsense",
    )
    found = WritablePlaces.find([own], mounts=mounts, is_container=True)
    assert set(found.folders) == {own, shared, extra}
    assert (found.files, found.problem) == ((file,), "")
    (extra / "left").touch()
    await found.clean(seconds=10)
    assert (list(extra.iterdir()), file.read_text()) == ([], "")


async def test_a_sandbox_whose_places_were_not_empty_or_have_no_bounds_is_never_clean(tmp_path):
    writable = write_mounts(tmp_path / "mountinfo", "/ rw - overlay overlay rw")
    own = tmp_path / "own"
    own.mkdir()
    (own / ".mcp-exec").mkdir()
    for found, problem in (
        (WritablePlaces.find([own], mounts=writable, is_container=True), "root file system"),
        (WritablePlaces.find([own], is_container=False), "not empty before the first run"),
    ):
        with pytest.raises(NotCleaned, match=problem):
            await found.clean(seconds=10)
    assert WritablePlaces.find([own], expected=[".mcp-exec"], is_container=False).problem == ""
    assert cleaning.MOUNTS.exists()
