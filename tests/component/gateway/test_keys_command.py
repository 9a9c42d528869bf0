"""`kubectl mcp-exec keys`: API keys as entries of the release's Secret, and what the gateway accepts of them."""

import base64
import json
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.component.gateway.commands import Command, call
from tests.component.gateway.conftest import KEY, SECRETS, Gateway, key_entry, keys_secret, serving
from tests.support.api_server import FakeApiServer, Fault
from tests.support.processes import write_kubeconfig
from tests.support.until import until

from mcp_exec_api.meta import now
from mcp_exec_client.cli.main import kubectl_main

SECRET = ("--secret", "api-keys")


@pytest.fixture
def command(
    api: FakeApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path / "kubeconfig", api.url)))
    return lambda *arguments: call(capsys, "keys", *arguments, *SECRET, entry=kubectl_main)


@pytest.fixture
async def gateway(api: FakeApiServer) -> AsyncIterator[Gateway]:
    async with serving(api) as made:
        yield made


async def is_accepted(gateway: Gateway, key: str) -> bool:
    return bool((await gateway.ask("GET", "/v1/executions", key=key)).status == 200)


async def test_a_created_key_works_and_only_its_digest_is_stored(
    gateway: Gateway, api: FakeApiServer, command: Command
) -> None:
    options = ["--for-namespace", "agents", "--pool", "default", "--valid-days", "30", "--description", "reports"]
    created = await command("create", "reports", *options)
    assert created.code == 0
    (key,) = created.lines
    await until(lambda: gateway.dependencies.keys.find(key) is not None)
    assert await is_accepted(gateway, key)
    assert await is_accepted(gateway, KEY), "other keys stay"
    assert key not in json.dumps(api.collections[SECRETS]) + created.err
    again = await command("create", "reports", "--for-namespace", "agents")
    assert (again.code, "rotate or revoke" in again.last) == (3, True)


async def test_keys_are_listed_without_digests(gateway: Gateway, command: Command) -> None:
    await command("create", "reports", "--for-namespace", "agents", "--valid-days", "30", "--description", "nightly")
    listed = await command("list", "-o", "json")
    (item,) = [each for each in json.loads(listed.out)["items"] if each["name"] == "reports"]
    assert (item["namespace"], item["description"]) == ("agents", "nightly")
    lasts = datetime.fromisoformat(item["expiresAt"]) - datetime.fromisoformat(item["createdAt"])
    assert lasts == timedelta(days=30)
    assert "sha256" not in listed.out
    assert (await command("list")).lines[0].split() == [
        "NAME",
        "NAMESPACE",
        "APPROVER",
        "EXPIRES",
        "AGE",
        "DESCRIPTION",
    ]


async def test_a_revoked_key_is_refused_and_the_others_stay(gateway: Gateway, command: Command) -> None:
    revoked = await command("revoke", "team-a")
    assert (revoked.code, revoked.lines) == (0, ["team-a is revoked"])
    await until(lambda: gateway.dependencies.keys.find(KEY) is None)
    assert not await is_accepted(gateway, KEY)
    missing = await command("revoke", "team-b", "nobody")
    assert (missing.code, "nobody" in missing.last) == (3, True)
    assert len(json.loads((await command("list", "-o", "json")).out)["items"]) == 1


async def test_a_rotated_key_has_its_name_and_limits_and_the_former_one_ends(
    gateway: Gateway, api: FakeApiServer, command: Command
) -> None:
    keys, at = gateway.dependencies.keys, [now()]
    keys.clock = lambda: at[0]
    api.put(SECRETS, keys_secret(**{"team-a": key_entry(KEY, pools=["long"])}))
    rotated = await command("rotate", "team-a", "--grace-hours", "2")
    (key,) = rotated.lines
    found = await until(lambda: keys.find(key))
    assert found is not None
    assert (found.name, found.limits.pools) == ("team-a", ["long"])
    assert await is_accepted(gateway, KEY)
    at[0] += timedelta(hours=2, seconds=1)
    assert (await is_accepted(gateway, KEY), await is_accepted(gateway, key)) == (False, True)


async def test_a_key_that_is_rotated_without_grace_ends_at_once(gateway: Gateway, command: Command) -> None:
    (key,) = (await command("rotate", "team-a", "--grace-hours", "0")).lines
    await until(lambda: gateway.dependencies.keys.find(key) is not None)
    assert not await is_accepted(gateway, KEY)


async def test_a_rotated_key_lasts_as_long_as_the_one_before(
    gateway: Gateway, api: FakeApiServer, command: Command
) -> None:
    created, ends = now() - timedelta(days=20), now() + timedelta(hours=1)
    lifetime = {"createdAt": created.isoformat(), "expiresAt": ends.isoformat()}
    api.put(SECRETS, keys_secret(**{"team-a": key_entry(KEY) | lifetime}))
    await command("rotate", "team-a", "--grace-hours", "48")
    (item,) = json.loads((await command("list", "-o", "json")).out)["items"]
    lasts = datetime.fromisoformat(item["expiresAt"]) - datetime.fromisoformat(item["createdAt"])
    assert lasts == ends - created
    assert datetime.fromisoformat(item["formerExpiresAt"]) == ends, "grace does not prolong a key"


@pytest.mark.parametrize("options", [["create", "k", "--for-namespace", "agents"], ["rotate", "team-a"]])
async def test_a_write_of_somebody_else_in_between_is_not_lost(
    api: FakeApiServer, command: Command, options: list[str]
) -> None:
    before = json.dumps(api.collections[SECRETS])
    api.faults.append(Fault("PATCH", "/secrets/api-keys", 409))
    refused = await command(*options)
    assert (refused.code, refused.out) == (3, "")
    assert json.dumps(api.collections[SECRETS]) == before


@pytest.mark.parametrize("entry", ["{", '{"sha256": "x"}'])
async def test_an_entry_that_is_not_valid_is_named_and_no_key_is_lost(
    api: FakeApiServer, command: Command, entry: str
) -> None:
    api.put(SECRETS, keys_secret(broken=entry, good=key_entry(KEY)))
    listed = await command("list", "-o", "name")
    assert (listed.lines, "the key broken is not valid" in listed.err) == (["good"], True)
    assert (await command("rotate", "broken")).code == 3
    assert base64.b64decode(api.collections[SECRETS]["api-keys"]["data"]["broken"]).decode() == entry


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["create", "k8s.alice", "--for-namespace", "agents"], "reserved for other callers"),
        (["create", "k", "--for-namespace", "agents", "--tool", "github"], "tools"),
        (["create", "k", "--for-namespace", "agents", "--description", "d" * 201], "description"),
    ],
)
async def test_a_key_that_can_not_be_is_refused(
    api: FakeApiServer, command: Command, options: list[str], said: str
) -> None:
    refused = await command(*options)
    assert (refused.code, said in refused.last) == (2, True)
    assert api.asked("PATCH", "/secrets") == []
