"""A rotation of the sandbox key while a gateway works."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.component.gateway.conftest import settings
from tests.support.api_server import FakeApiServer
from tests.support.constants import SANDBOX_KEY
from tests.support.mounts import write_version
from tests.support.processes import write_kubeconfig
from tests.support.until import until

from mcp_exec_common.process.mounts import MountedFolder
from mcp_exec_gateway.core.dependencies import Dependencies
from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.features import FEATURES
from mcp_exec_gateway.features.files.artifacts import ArtifactAddress
from mcp_exec_gateway.features.files.service import Files

NEW = b"the new key of the sandboxes"


@pytest.fixture(autouse=True)
def short_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MountedFolder, "CHECK_SECONDS", 0.01)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "keys"
    made.mkdir()
    write_version(made, {"key": SANDBOX_KEY})
    return made


@pytest.fixture
async def connected(api: FakeApiServer, folder: Path, tmp_path: Path) -> AsyncIterator[Dependencies]:
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", api.url)
    async with Dependencies.connect(
        settings(sandbox_key_folder=folder, kubeconfig=kubeconfig), features=FEATURES.values()
    ) as made:
        yield made


async def test_a_link_is_valid_through_the_overlap_and_not_after_it(connected: Dependencies, folder: Path) -> None:
    address = ArtifactAddress(namespace="agents", execution="exec-1", uid="u", id="x")
    keys, links = connected.supervisors.keys, connected.get(Files).artifacts.links
    path, expires = links.build_path(address, seconds=60)
    signature = path.partition("signature=")[2]
    for entries in (
        {"key": SANDBOX_KEY, "next-key": NEW},
        {"key": NEW, "previous-key": SANDBOX_KEY},
    ):
        write_version(folder, entries)
        await until(lambda: keys.signing == entries["key"] and len(list(keys)) == 2)  # noqa: B023 - awaited at once
        links.verify(address, expires=expires, signature=signature)
    assert links.build_path(address, seconds=60)[0] != path
    write_version(folder, {"key": NEW})
    await until(lambda: list(keys) == [NEW])
    with pytest.raises(HttpProblem, match="not valid"):
        links.verify(address, expires=expires, signature=signature)
