"""A rotation of the sandbox key while a broker works."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.component.broker.conftest import Toolbox, World
from tests.component.broker.servers import module, real_bridge, stdio_status, stdio_token
from tests.support.constants import SANDBOX_KEY
from tests.support.grants import make_grant
from tests.support.mounts import write_version
from tests.support.until import until
from yarl import URL

from mcp_exec_common.broker.client import BrokerClient, BrokerError
from mcp_exec_common.broker.grants import GrantSigner
from mcp_exec_common.process.mounts import MountedFolder
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_common.supervisor.client import SupervisorClient

NEW = b"the new key of the sandboxes"


@pytest.fixture(autouse=True)
def short_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MountedFolder, "CHECK_SECONDS", 0.01)


STEPS = [
    {"key": SANDBOX_KEY},
    {"key": SANDBOX_KEY, "next-key": NEW},
    {"key": NEW, "previous-key": SANDBOX_KEY},
    {"key": NEW},
]


async def mount(world: World, entries: dict[str, bytes]) -> None:
    """Change the mounted Secret, and wait until the broker uses it."""
    keys = world.broker.mounted_keys.keys
    write_version(world.broker.settings.sandbox_key_folder, entries)
    await until(lambda: list(keys) == list(entries.values()))


@asynccontextmanager
async def asking(world: World, *keys: bytes) -> AsyncIterator[BrokerClient]:
    """A client as operator and gateway with these keys have it, with connections of its own."""
    async with SupervisorClient.connect(keys=SandboxKeys(*keys)) as supervisors:
        yield BrokerClient(
            session=supervisors.broker_session,
            signer=GrantSigner(keys=supervisors.keys),
            sender="operator",
            addresses=lambda: [URL(world.control).authority],
        )


async def test_operator_and_gateway_reach_a_broker_that_is_a_step_ahead_or_behind(world: World) -> None:
    for number, entries in enumerate(STEPS):
        if number:
            await mount(world, entries)
        for others in STEPS[max(0, number - 1) : number + 2]:
            async with asking(world, *others.values()) as client:
                assert (await client.get_calls("uid-1")).tool_calls.total == 0


async def test_who_has_only_a_key_that_is_gone_neither_trusts_the_broker_nor_is_trusted(world: World) -> None:
    await mount(world, STEPS[2])
    async with asking(world, SANDBOX_KEY, NEW) as client:
        await client.get_calls("uid-1")
        await mount(world, STEPS[3])
        with pytest.raises(BrokerError):  # over the connection that is proven already
            await client.get_calls("uid-1")
    async with asking(world, SANDBOX_KEY) as client:
        with pytest.raises(BrokerError):
            await client.get_calls("uid-1")


async def test_an_execution_calls_tools_through_the_overlap_and_not_after_it(world: World, box: Toolbox) -> None:
    assert box
    token = GrantSigner(keys=SandboxKeys(SANDBOX_KEY)).sign(make_grant(pod_address="127.0.0.1"))
    for entries in STEPS[1:3]:
        assert (await world.call("box.add", token=token, a=1, b=2))["value"] == 3
        await mount(world, entries)
    assert (await world.call("box.add", token=token, a=1, b=2))["value"] == 3
    await mount(world, STEPS[3])
    with pytest.raises(AssertionError, match="the token is not valid"):
        await world.call("box.add", token=token, a=1, b=2)


@pytest.mark.parametrize("key", [SANDBOX_KEY, NEW], ids=["former", "new"])
async def test_the_bridge_of_a_stdio_server_is_reached_with_the_token_that_it_knows(world: World, key: bytes) -> None:
    """The operator replaces its pod a moment before or after the broker has read the keys."""
    token = stdio_token("time", key=key)
    async with real_bridge(module("mcp_server_time", "--local-timezone=UTC"), token=token) as address:
        status = stdio_status(address)
        for name, entries in (("published", STEPS[1]), ("signing", STEPS[2])):
            await mount(world, entries)
            world.add("time", stdio={"image": name, "command": ["mcp-server-time"]}, status=status)
            await until(lambda: world.status("time").get("available"))
        answer = await world.call("time.get_current_time", timezone="UTC")
    assert answer["value"]["timezone"] == "UTC"
