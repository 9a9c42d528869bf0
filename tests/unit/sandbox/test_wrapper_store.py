"""Where wrappers wait for an execution: writing, giving up in the middle, removing."""

import asyncio
import os

import pytest

from mcp_exec_sandbox.supervisor.wrapper_store import FILES_PER_TURN, NotIdle, WrapperStore, WrapperUpload


def bundle(digest, servers=3, tools=20):
    files = {f"s{n}/t{m}.py": "x = 1\n" for n in range(servers) for m in range(tools)}
    names = {f"s{n}": f"s{n}" for n in range(servers)}
    return WrapperUpload(hash=digest, files=files, catalogs={"s0": {"server": "s0", "tools": []}}, servers=names)


def files_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


async def turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_an_execution_does_not_wait_for_wrappers_and_ends_their_writing(tmp_path):
    store = WrapperStore(tmp_path)
    await store.replace(bundle("one", servers=1))
    task = asyncio.ensure_future(store.replace(bundle("two")))
    await turns(2)
    store.close()
    store.show(["*.*"])
    with pytest.raises(NotIdle):
        await task
    assert store.hash == "one"
    assert "s0" in [path.name for path in (tmp_path / "servers").iterdir()]
    await store.discard()
    assert [path.name for path in tmp_path.iterdir()] == ["servers"]


async def test_a_writing_that_is_broken_off_changes_nothing_and_is_cleaned_up_by_the_next(tmp_path):
    store = WrapperStore(tmp_path)
    await store.replace(bundle("one"))
    before = files_in(tmp_path)
    for steps in range(1, 12):
        task = asyncio.ensure_future(store.replace(bundle("two")))
        await turns(steps)
        if not task.cancel():
            break
        with pytest.raises(asyncio.CancelledError):
            await task
        await store.replace(bundle("one"))
        assert store.hash == "one"
        assert len(files_in(tmp_path)) == len(before)


async def test_the_event_loop_gets_its_turn_while_wrappers_are_written(tmp_path):
    store = WrapperStore(tmp_path)
    task = asyncio.ensure_future(store.replace(bundle("one", servers=5)))
    count = 0
    while not task.done():
        await turns(1)
        count += 1
    assert count >= 100 // FILES_PER_TURN


async def test_what_the_code_puts_in_the_way_is_left_alone(tmp_path):
    store = WrapperStore(tmp_path / "w")
    (tmp_path / "w").mkdir()
    await store.replace(bundle("one"))
    store.show(["s1.*"])
    hidden = next((tmp_path / "w/.mcp-exec").iterdir())
    (hidden / "s0/mine.py").write_text("kept")
    await store.discard()
    assert files_in(tmp_path / "w/.mcp-exec") == [f"{hidden.name}/s0/mine.py"]
    assert (tmp_path / "w/servers/s1/t0.py").exists()


async def test_nothing_is_raised_where_the_code_has_no_room_for_them(tmp_path):
    store = WrapperStore(tmp_path / "missing")
    store.show(["*.*"])
    await store.discard()
    (tmp_path / "missing").write_text("a file")
    with pytest.raises(OSError, match="missing"):
        await store.replace(bundle("one"))


async def test_what_a_session_has_put_in_the_way_of_wrappers_blocks_nothing(tmp_path):
    store = WrapperStore(tmp_path)
    await store.replace(bundle("one"))
    store.close()
    store.show(["s0.*"])
    await store.discard()
    (tmp_path / "servers/s1").mkdir()
    os.mkfifo(tmp_path / "servers/s1/t0.py")
    os.mkfifo(tmp_path / "servers/s2")
    store.show(["*.*"])
    assert files_in(tmp_path / "servers/s0") != []
    await store.discard()
    (tmp_path / ".mcp-exec").symlink_to(tmp_path / "servers")
    store.show(["s1.*"])
