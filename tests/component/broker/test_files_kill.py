"""Workspaces after the broker is killed in the middle of commits, and two brokers on one bucket."""

import asyncio
import signal
from pathlib import Path

import aiohttp
import pytest
from tests.component.broker.conftest import World, running
from tests.component.broker.files_client import FakeSandbox, files_grant
from tests.component.broker.test_process import MODULE, broker
from tests.support.api_server import FakeApiServer
from tests.support.processes import SECONDS, started
from tests.support.s3_server import running_s3
from tests.support.until import until

ROUNDS = 2
WRITERS = 3


async def write_until_killed(sandbox: FakeSandbox, number: int, acknowledged: dict[int, int]) -> None:
    """Commit version after version; note the last number that was acknowledged. Each file has its number as content."""
    count = acknowledged.get(number, 0)
    while True:
        count += 1
        content = b"%d " % count * 3000
        try:
            await sandbox.save({f"{part}.txt": content for part in range(5)})
        except (aiohttp.ClientError, AssertionError):  # the connection broke, or the broker stopped to listen
            return
        acknowledged[number] = count


async def test_a_broker_that_is_killed_loses_no_commit_and_leaves_no_half_of_one(
    api: FakeApiServer, tmp_path: Path
) -> None:
    env = broker(tmp_path, api, MCP_EXEC_FILES_FOLDER=str(tmp_path / "files"))
    world_urls = (f"http://127.0.0.1:{env['MCP_EXEC_PORT']}", f"http://127.0.0.1:{env['MCP_EXEC_CONTROL_PORT']}")
    acknowledged: dict[int, int] = {}
    async with aiohttp.ClientSession() as session, asyncio.timeout(3 * SECONDS):
        for round in range(ROUNDS + 1):
            async with started(*MODULE, env=env) as process:
                await process.says("ready")
                sandboxes = [
                    FakeSandbox(
                        World(api, None, session, *world_urls),  # type: ignore[arg-type]
                        files_grant(name=f"data-{number}", execution=f"uid-{round}-{number}"),
                    )
                    for number in range(WRITERS)
                ]
                for number, sandbox in enumerate(sandboxes):
                    _, found = await sandbox.fetch()
                    (content,) = set(found.values()) or {b"0 "}
                    assert len(found) in (0, 5)
                    assert int(content.split()[0]) - acknowledged.get(number, 0) in (0, 1), "one may lack its answer"
                    acknowledged[number] = int(content.split()[0])
                if round < ROUNDS:
                    before = sum(acknowledged.values())
                    writers = [
                        asyncio.create_task(write_until_killed(sandbox, number, acknowledged))
                        for number, sandbox in enumerate(sandboxes)
                    ]
                    enough = before + 6 + round
                    await until(lambda enough=enough: sum(acknowledged.values()) >= enough)  # type: ignore[misc]
                    process.tell(signal.SIGKILL)
                    await asyncio.gather(*writers)


@pytest.mark.parametrize("writers", [4])
async def test_two_brokers_on_one_bucket_commit_each_version_once(
    api: FakeApiServer, tmp_path: Path, writers: int
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with running_s3() as s3:
        settings = s3.settings(tmp_path)
        async with running(api, tmp_path / "one", **settings) as one, running(api, tmp_path / "two", **settings) as two:
            sandboxes = [
                FakeSandbox((one, two)[number % 2], files_grant(execution=f"uid-{number}")) for number in range(writers)
            ]
            head, _ = await sandboxes[0].manifest()
            results = await asyncio.gather(
                *(sandbox.save({f"f{number}": b"%d" % number}, head=head) for number, sandbox in enumerate(sandboxes))
            )
            assert sorted(result["version"] for result in results) == list(range(1, writers + 1))
            for sandbox in sandboxes:
                assert (await sandbox.fetch())[1] == {f"f{number}": b"%d" % number for number in range(writers)}
