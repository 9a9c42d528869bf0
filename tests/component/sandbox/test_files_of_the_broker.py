"""A real supervisor and the real broker on a volume: what is saved, what others write meanwhile, what restarts keep."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.component.broker.conftest import World, running
from tests.component.broker.files_client import OWNER, files_client, files_grant
from tests.support.api_server import FakeApiServer
from tests.support.files_client import FilesClient
from tests.support.until import until

from mcp_exec_api.files import Owner


class Me(Owner):
    """The owner of the grants of these tests."""

    @property
    def digest(self) -> str:
        return OWNER


ME = Me(namespace="agents")
WAIT = "import pathlib\nwhile not pathlib.Path('/proc/self/cwd/go').exists(): pass\npathlib.Path('go').unlink()\n"


def job(world: World, uid: str, *, mode: str = "Write") -> dict[str, Any]:
    workspace = {"name": "data", "mode": mode}
    token = files_grant(execution=uid, mode=mode)
    return {"url": world.url, "token": token, "workspace": workspace, "maxArtifacts": 3, "maxArtifactBytes": 10_000}


async def read(client: FilesClient, path: str) -> bytes:
    async with client.open_file(ME, "data", path) as stream:
        return b"".join([chunk async for chunk in stream.chunks])


async def run_beside(sandbox: Any, world: World, uid: str, code: str, write: Callable[[], Any]) -> Any:
    """Run code that waits, write by a request meanwhile, and return the end."""
    running_code = asyncio.create_task(asyncio.to_thread(sandbox.run, WAIT + code, id=uid, files=job(world, uid)))
    await until((sandbox.workspace / "a.txt").exists)
    await write()
    (sandbox.workspace / "go").touch()
    return (await running_code).end["workspace"]


async def test_files_travel_to_the_broker_and_back_and_survive_its_restart(make_sandbox: Any, tmp_path: Path) -> None:
    first, second, third, fourth = (make_sandbox() for _ in range(4))
    async with FakeApiServer().running() as api, running(api, tmp_path, files_folder=tmp_path / "files") as world:
        client = files_client(world)
        code = "open('a.txt', 'w').write('1')\nopen('b.sh', 'w').write('x' * 100_000)\nshow('shown', 'note.txt')"
        run = await asyncio.to_thread(first.run, code, files=job(world, "uid-1"))
        assert run.end["workspace"] == {"base": 0, "version": 1, "changedFiles": 2, "bytes": 100_001, "leftOut": 0}
        (artifact,) = [event for event in run.events if event["type"] == "artifact"]
        async with client.open_artifact(ME, "uid-1", artifact["id"]) as stream:
            assert b"".join([chunk async for chunk in stream.chunks]) == b"shown"
    async with FakeApiServer().running() as api, running(api, tmp_path, files_folder=tmp_path / "files") as world:
        client = files_client(world)
        read_both = "[open('a.txt').read(), len(open('b.sh').read())]"
        run = await asyncio.to_thread(second.run, read_both, files=job(world, "uid-2"), id="uid-2")
        assert (run.result, run.end["workspace"]["version"]) == (["1", 100_000], 1)
        append = "open('a.txt', 'a').write('2')"
        write = partial(client.put_file, ME, "data", "c.txt", b"other")
        ended = await run_beside(third, world, "uid-3", append, write)
        assert (ended["base"], ended["version"]) == (1, 3)
        assert [await read(client, path) for path in ("a.txt", "c.txt")] == [b"12", b"other"]
        write = partial(client.put_file, ME, "data", "a.txt", b"theirs")
        ended = await run_beside(fourth, world, "uid-4", append, write)
        assert (ended["base"], ended["reason"]) == (3, "WorkspaceConflict")
        assert await read(client, "a.txt") == b"theirs"
