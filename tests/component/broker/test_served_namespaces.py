"""Namespaces that come and go while a broker runs."""

from pathlib import Path

import pytest
from tests.component.broker.conftest import LOOPBACK, grant, running
from tests.component.broker.servers import Toolbox
from tests.support.api_server import FakeApiServer
from tests.support.mounts import mount_namespaces
from tests.support.until import until

from mcp_exec_api.constants import TOOL_SERVERS
from mcp_exec_common.kube.client import custom_resource_path
from mcp_exec_common.process.mounts import MountedFolder

OTHERS = custom_resource_path(TOOL_SERVERS, namespace="others")


@pytest.fixture(autouse=True)
def short_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MountedFolder, "CHECK_SECONDS", 0.01)


async def test_the_servers_of_a_namespace_come_and_go_with_it(api: FakeApiServer, tmp_path: Path, box: Toolbox) -> None:
    folder = mount_namespaces(tmp_path / "namespaces", "agents")
    api.put(OTHERS, {"metadata": {"name": "box", "generation": 1}, "spec": {"url": box.url}})
    async with running(api, tmp_path, namespaces_folder=folder, allowed_addresses=LOOPBACK) as world:
        token = grant(namespace="others")
        assert (await world.ask("GET", "/v1/namespaces/others/tools"))[0] in (403, 404)
        mount_namespaces(folder, "agents", "others")
        await until(lambda: (api.collections[OTHERS]["box"].get("status") or {}).get("available"))
        assert (await world.call("box.add", token=token, a=1, b=2))["value"] == 3
        assert world.broker.health.list_missing() == []
        mount_namespaces(folder, "agents")
        await until(lambda: all(server.namespace != "others" for server in world.broker.tracker.servers))
        with pytest.raises(AssertionError, match="does not serve the grant"):
            await world.call("box.add", token=token, a=1, b=2)
