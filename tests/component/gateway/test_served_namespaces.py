"""Namespaces that come and go while a gateway serves."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.component.gateway.conftest import DEADLINE, KEY, OTHER_KEY, Gateway, pool, serving
from tests.support.api_server import FakeApiServer
from tests.support.mounts import mount_namespaces
from tests.support.until import until

from mcp_exec_common.process.mounts import MountedFolder

GROUP = "/apis/mcp-exec.dev/v1beta1/namespaces/others"
OTHERS = f"{GROUP}/codeexecutions"


@pytest.fixture(autouse=True)
async def pool_of_others(api: FakeApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MountedFolder, "CHECK_SECONDS", 0.01)
    api.put(f"{GROUP}/sandboxpools", pool("default"))


async def submit(gateway: Gateway) -> int:
    """Submit an execution in the namespace `others`."""
    answer: Any = await gateway.post({"code": "1", "poolRef": {"name": "default"}}, "?wait=0", key=OTHER_KEY)
    return int(answer.status)


async def test_a_namespace_is_served_from_when_it_is_named_until_it_is_not(api: FakeApiServer, tmp_path: Path) -> None:
    folder = mount_namespaces(tmp_path / "namespaces", "agents")
    async with serving(api, namespaces_folder=folder) as gateway:
        waiting = asyncio.create_task(gateway.post(query="?wait=30"))
        await until(lambda: gateway.executions)
        assert await submit(gateway) == 403
        mount_namespaces(folder, "agents", "others")
        await until(lambda: "others" in gateway.dependencies.namespaces.served)
        assert await submit(gateway) == 202
        (name,) = api.collections[OTHERS]
        listed = (await gateway.ask("GET", "/v1/executions", key=OTHER_KEY)).json["items"]
        await until(lambda: gateway.dependencies.index.count_all_active("others") == 1)
        mount_namespaces(folder, "agents")
        await until(lambda: "others" not in gateway.dependencies.namespaces.served)
        assert await submit(gateway) == 403
        assert gateway.dependencies.index.count_all_active("others") == 0
        assert [each["name"] for each in listed] in ([], [name])
        gateway.finish(next(iter(gateway.executions)))
        async with asyncio.timeout(DEADLINE):  # the request of the first namespace has not noticed anything
            assert (await waiting).json["phase"] == "Succeeded"


async def test_a_namespace_without_rights_yet_delays_nobody_else(api: FakeApiServer, tmp_path: Path) -> None:
    folder = mount_namespaces(tmp_path / "namespaces", "agents")
    api.hanging.add("/namespaces/others/codeexecutions")
    async with serving(api, namespaces_folder=folder) as gateway:
        mount_namespaces(folder, "agents", "others")
        await until(lambda: "executions in others" in gateway.dependencies.namespaces.reflectors)
        assert (await gateway.ask("GET", "/readyz", key=None)).status == 200
        assert (await gateway.post(query="?wait=0", key=KEY)).status == 202
        assert await submit(gateway) == 403
        mount_namespaces(folder, "agents")
        await until(lambda: "executions in others" not in gateway.dependencies.namespaces.reflectors)


async def test_a_namespace_whose_rights_were_taken_away_stops_no_gateway_that_starts(api: FakeApiServer) -> None:
    api.forbidden.add("/namespaces/others/")
    async with serving(api, namespaces=("agents", "others")) as gateway:
        assert list(gateway.dependencies.namespaces.served) == ["agents"]
        assert (await gateway.ask("GET", "/readyz", key=None)).status == 200
        assert (await gateway.post(query="?wait=0", key=KEY)).status == 202
        assert await submit(gateway) == 403
        api.forbidden.clear()
        await until(lambda: "others" in gateway.dependencies.namespaces.served)
        assert await submit(gateway) == 202


@pytest.mark.parametrize("names", [("",), ("agents", "agents"), ("mcp-exec-system",)])
async def test_a_list_that_is_not_valid_changes_nothing(
    api: FakeApiServer, tmp_path: Path, names: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    folder = mount_namespaces(tmp_path / "namespaces", "agents")
    async with serving(api, namespaces_folder=folder, release_namespace="mcp-exec-system") as gateway:
        mount_namespaces(folder, *names)
        await until(lambda: "so its last content stays in use" in caplog.text)
        assert list(gateway.dependencies.namespaces.served) == ["agents"]
        assert (await gateway.post(query="?wait=0")).status == 202
