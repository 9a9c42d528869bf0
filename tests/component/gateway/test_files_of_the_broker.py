"""Client, gateway and broker together: files of workspaces and an artifact, from end to end without a cluster."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from tests.component.broker.conftest import running
from tests.component.broker.files_client import FakeSandbox, digest, files_grant, find_store
from tests.component.gateway.conftest import KEY, Gateway, serving
from tests.component.gateway.test_client_state import fill
from tests.component.gateway.test_sessions import two_callers
from tests.support.api_server import FakeApiServer
from tests.support.broker import SLICES

from mcp_exec_api.files import Owner
from mcp_exec_broker.features.files.keys import OwnerSpace
from mcp_exec_client import AsyncClient
from mcp_exec_client.errors import GatewayError, NotFound, Outdated
from mcp_exec_common.broker.files import ARTIFACTS_PATH

OWNER = Owner(namespace="agents", caller="team-a")
SPACE = OwnerSpace("agents", OWNER.digest, OWNER.caller_digest)
CONTENT = bytes(range(256)) * 5000
FIGURE = bytes(range(256)) * 30


def slice_of(control: str) -> dict[str, object]:
    host, _, port = control.removeprefix("http://").rpartition(":")
    return {
        "metadata": {"name": "b-1", "labels": {"kubernetes.io/service-name": "mcp-exec-broker"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [host], "targetRef": {"uid": "b"}, "conditions": {"ready": True}}],
        "ports": [{"name": "control", "port": int(port)}],
    }


async def run_with_artifact(gateway: Gateway, sandbox: FakeSandbox, name: str) -> None:
    """Store an artifact as a sandbox does, and show it in the execution's status."""
    head = {"name": "data.bin", "mediaType": "image/png", "size": len(FIGURE), "sha256": digest(FIGURE)}
    stored = await sandbox.ask("POST", ARTIFACTS_PATH, json.dumps(head).encode() + b"\n" + FIGURE)
    item = {"id": stored["id"], "name": "data.bin", "mediaType": "image/png", "bytes": len(FIGURE)}
    gateway.finish(name, artifacts=[{**item, "sha256": digest(FIGURE)}])


async def test_files_and_artifacts_pass_through_gateway_and_broker(api: FakeApiServer, tmp_path: Path) -> None:
    folder = fill(tmp_path / "in", a="1", b_c="2", b_d="3")
    (folder / "large.bin").write_bytes(CONTENT)
    (tmp_path / "broker").mkdir()
    async with running(api, tmp_path / "broker", files_folder=tmp_path / "store") as world:
        api.put(SLICES, slice_of(world.control))
        async with (
            serving(api, broker_service="mcp-exec-broker") as gateway,
            AsyncClient(gateway.url, api_key=KEY) as client,
        ):
            first = await client.files.sync("w", folder)
            assert (len(first.uploaded), first.version) == (4, 1)
            fill(folder, b_c="two")
            (folder / "a").unlink()
            second = await client.files.sync("w", folder, delete=True)
            assert (second.uploaded, second.deleted, second.unchanged) == (("b/c",), ("a",), 2)
            pulled = await client.files.pull("w", tmp_path / "out")
            assert pulled.downloaded == ("b/c", "b/d", "large.bin")
            assert (tmp_path / "out/large.bin").read_bytes() == CONTENT
            assert await client.files.read("w", "a", version=1) == b"1"
            await client.workspaces.restore("w", 1)
            assert [file.path async for file in client.files.list("w", prefix="b/")] == ["b/c", "b/d"]
            archive = await client.workspaces.save_archive("w", tmp_path / "w.tar")
            await client.workspaces.load_archive("copy", archive, replace=True)
            assert await client.files.read("copy", "large.bin") == CONTENT
            put = await client.workspaces.put("w", description="mine", ttl_seconds=7200)
            assert (put.description, put.ttl_seconds) == ("mine", 7200)
            assert [each.name for each in await client.workspaces.list()] == ["copy", "w"]
            assert (await client.workspaces.versions("w"))[0].version == 3
            state = await client.workspaces.get("w")
            saved = await client.files.write("w", "c", "3", if_match=state.etag)
            with pytest.raises(Outdated, match="in version 4"):
                await client.files.write("w", "c", "4", if_match=state.etag)
            assert (await client.files.delete("w", "c", if_match=saved.etag)).version == 5
            await client.files.delete("w", "b")
            await client.workspaces.delete("copy")
            for workspace, path in (("copy", "a"), ("w", "b/c"), ("none", "x")):
                with pytest.raises(NotFound):
                    await client.files.read(workspace, path)
            with pytest.raises(GatewayError):
                await client.files.write("w", "../x", "1")
            submitted = await client.submit("1")
            uid = gateway.executions[submitted.name]["metadata"]["uid"]
            sandbox = FakeSandbox(world, files_grant(owner=OWNER.digest, execution=uid))
            await run_with_artifact(gateway, sandbox, submitted.name)
            (artifact,) = (await client.get(submitted.name)).artifacts
            saved = await artifact.save(tmp_path)
            assert (saved.name, saved.read_bytes()) == ("data.bin", FIGURE)
            (listed,) = await client.artifacts.list(submitted.name)
            async with gateway.session.get(str(listed.url)) as shown:
                assert (await shown.read(), shown.headers["ETag"]) == (FIGURE, f'"{digest(FIGURE)}"')
    assert sorted(os.listdir(tmp_path / "out")) == ["b", "large.bin"]


async def test_a_keys_limit_of_workspaces_holds_for_requests_at_the_same_time(
    api: FakeApiServer, tmp_path: Path
) -> None:
    (tmp_path / "broker").mkdir()
    async with running(api, tmp_path / "broker", files_folder=tmp_path / "store") as world:
        api.put(SLICES, slice_of(world.control))
        async with serving(api, broker_service="mcp-exec-broker") as gateway:
            await two_callers(gateway, maxWorkspaces=2)
            paths = [f"/v1/workspaces/w?user=user-{number}" for number in range(24)]
            answers = await asyncio.gather(*(gateway.ask("PUT", path, json={}) for path in paths))
            assert sum(answer.status == 200 for answer in answers) == 2
            assert {answer.status for answer in answers} <= {200, 413, 429}
            assert await find_store(world).states.count_of_caller(SPACE) == 2
