"""Two tenants at one broker: an execution reaches the servers, credentials and approvals of its own namespace alone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.component.broker.conftest import SECRETS, World, grant, running, secret
from tests.component.broker.servers import Toolbox, serving, toolbox
from tests.support.api_server import FakeApiServer
from tests.support.until import until

from mcp_exec_api.constants import TOOL_SERVERS
from mcp_exec_common.kube.client import custom_resource_path, resource_path

B_SERVERS = custom_resource_path(TOOL_SERVERS, namespace="others")
B_SECRETS = resource_path("secrets", namespace="others")
BY_USER = [{"name": "X-User-Token", "secretName": "users"}]


@asynccontextmanager
async def both(api: FakeApiServer, folder: Path) -> AsyncIterator[tuple[World, Toolbox]]:
    """A broker for A (`agents`, with the server `box`) and B (`others`), and B's server, which both name."""
    settings = {"namespaces": ("agents", "others"), "secret_seconds": 0}
    async with running(api, folder, **settings) as world, serving(toolbox()) as theirs:
        api.put(B_SECRETS, secret("users", alice="token-of-alice-at-b"))
        for name in ("box", "of-b"):
            spec = {"url": theirs.url, "userHeaders": BY_USER}
            api.put(B_SERVERS, {"metadata": {"name": name, "generation": 1}, "spec": spec})
        await until(lambda: (api.collections[B_SERVERS]["of-b"].get("status") or {}).get("available"))
        yield world, theirs


async def test_a_server_of_another_namespace_is_as_if_it_were_not(api: FakeApiServer, tmp_path: Path) -> None:
    async with both(api, tmp_path) as (world, theirs):
        answers = [await world.call(f"{name}.add", a=1, b=1) for name in ("of-b", "absent")]
        texts = [str(answer).replace("of-b", "NAME").replace("absent", "NAME") for answer in answers]
        assert texts[0] == texts[1]
        assert answers[0]["kind"] == "ToolError"
        assert theirs.calls == []
        owner = grant(namespace="others", user="alice", execution="uid-b")
        assert (await world.call("of-b.add", token=owner, a=1, b=1))["value"] == 2


async def test_servers_and_users_of_one_name_are_of_their_own_namespace(api: FakeApiServer, tmp_path: Path) -> None:
    async with both(api, tmp_path) as (world, theirs), serving(toolbox()) as own:
        api.put(SECRETS, secret("users", bob="token-of-bob-at-a"))
        world.add("box", url=own.url, userHeaders=BY_USER)
        await world.listed("box")
        refused = await world.call("box.add", token=grant(user="alice"), a=1, b=1)
        assert (refused["kind"], refused["reason"]) == ("ToolDenied", "NoUserCredentials")
        api.put(SECRETS, secret("users", alice="token-of-alice-at-a"))
        assert (await world.call("box.add", token=grant(user="alice"), a=1, b=1))["value"] == 2
        assert own.header("x-user-token")[-1] == "token-of-alice-at-a"
        assert theirs.calls == []


@pytest.mark.parametrize("path", ["/v1/executions/uid-b", "/v1/audit", "/v1/namespaces/others/catalog"])
async def test_a_url_of_the_releases_own_ports_gets_nothing(world: World, path: str) -> None:
    """The broker connects to the address that a ToolServer names, but never with a token of the release."""
    world.add("inside", url=world.control + path)
    await until(lambda: world.status("inside").get("reason"))
    assert not world.status("inside").get("available")
