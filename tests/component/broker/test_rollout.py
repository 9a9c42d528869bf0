"""A rollout of a broker with volumes: the former broker ends its calls while the next one serves from them."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from tests.component.broker.conftest import World, running
from tests.component.broker.files_client import FakeSandbox, files_grant
from tests.component.broker.servers import serving, toolbox
from tests.component.broker.test_records import EXECUTION, build_client
from tests.support.api_server import FakeApiServer
from tests.support.constants import DEADLINE


async def outcomes(world: World) -> list[tuple[str, str | None]]:
    status, found = await world.ask("GET", "/v1/audit?namespace=agents")
    assert status == 200, found
    return [(item["tool"], item["outcome"]) for item in found["items"]]


async def test_two_brokers_share_the_volumes_while_the_first_one_ends(api: FakeApiServer, tmp_path: Path) -> None:
    volumes = {"files_folder": tmp_path / "files", "records_file": tmp_path / "records.sqlite"}
    async with asyncio.timeout(2 * DEADLINE), serving(box := toolbox()), AsyncExitStack() as stack:
        before = await stack.enter_async_context(running(api, tmp_path, **volumes))
        before.add("box", url=box.url)
        await before.listed("box")
        calling = asyncio.create_task(before.call("box.hang"))
        await box.entered.wait()
        runs = [FakeSandbox(before, files_grant())]
        head, _ = await runs[0].manifest()
        async with running(api, tmp_path, **volumes) as world:
            runs.append(FakeSandbox(world, files_grant(execution="uid-2")))
            assert (await world.call("box.add", a=1, b=2))["value"] == 3
            saved = [await run.save({f"file-{number}": b"%d" % number}, head=head) for number, run in enumerate(runs)]
            assert [result["version"] for result in saved] == [1, 2]
            await asyncio.gather(*(build_client(each).add({"executions": [EXECUTION]}) for each in (before, world)))
            assert await outcomes(world) == [("add", "ok"), ("hang", None)]
            box.release.set()
            assert (await calling)["value"] == "released"
            assert await outcomes(world) == [("add", "ok"), ("hang", "ok")]
            await stack.aclose()
            _, found = await runs[1].fetch()
            assert found == {"file-0": b"0", "file-1": b"1"}
