"""docs/platform/backup.md: the copy of the broker's volumes, restored below a broker that has never seen them."""

import shlex
import subprocess
from pathlib import Path

from tests.component.broker.conftest import World, running
from tests.component.broker.files_client import files_client
from tests.component.broker.servers import serving, toolbox
from tests.component.broker.test_files import ME, read
from tests.component.broker.test_records import EXECUTION, build_client
from tests.support.api_server import FakeApiServer
from tests.support.constants import DEADLINE
from tests.support.pages import steps

COPIES = [step.command for step in steps("platform/backup.md") if "copier" in step.command]


def settings(volumes: Path) -> dict[str, Path]:
    """Return the broker's settings for volumes that are mounted as the page mounts them for the copy."""
    for name in ("audit", "files", "records"):
        (volumes / name).mkdir(parents=True, exist_ok=True)
    return {
        "audit_file": volumes / "audit/audit.sqlite",
        "files_folder": volumes / "files/store",
        "records_file": volumes / "records/records.sqlite",
    }


def copy(command: str, *, volumes: Path, folder: Path) -> None:
    """Run a command of the page as the pod would: `kubectl exec` runs what follows `--`."""
    inside = command.partition(" -- ")[2].replace("/data", shlex.quote(str(volumes)))
    subprocess.run(["bash", "-euc", inside], cwd=folder, check=True, timeout=DEADLINE)


async def audited(world: World) -> list[str]:
    _, page = await world.ask("GET", "/v1/audit?namespace=agents")
    return [call["tool"] for call in page["items"]]


async def test_records_audit_log_and_files_come_back_from_a_copy(api: FakeApiServer, tmp_path: Path) -> None:
    save, restore = COPIES
    (tmp_path / "backup").mkdir()
    before, after = tmp_path / "before", tmp_path / "after"
    async with serving(toolbox()) as box, running(api, tmp_path, **settings(before)) as world:
        world.add("box", url=box.url)
        await world.listed("box")
        await world.call("box.add", a=1, b=2)
        assert (await build_client(world).add({"executions": [EXECUTION]})).stored == 1
        await files_client(world).put_file(ME, "sales", "a/b.csv", b"1,2\n")
        calls = await audited(world)
    copy(save, volumes=before, folder=tmp_path)
    kept = settings(after)
    copy(restore, volumes=after, folder=tmp_path)
    async with running(api, tmp_path, **kept) as world:
        assert await audited(world) == calls != []
        assert await build_client(world).find_executions(["u-1", "u-2"]) == {"u-1"}
        assert await read(files_client(world), ME, "sales", "a/b.csv") == b"1,2\n"
