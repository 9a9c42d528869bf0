"""Lists without items: a sentence on standard error, and nothing on standard output but JSON and YAML."""

import json
from pathlib import Path

import pytest
from tests.component.gateway.commands import Command, call
from tests.component.gateway.conftest import KEY, SECRETS, Gateway, key_entry, keys_secret
from tests.support.api_server import FakeApiServer
from tests.support.processes import write_kubeconfig

from mcp_exec_client.cli.main import kubectl_main


@pytest.fixture
def gateway(gateway_with_broker: Gateway) -> Gateway:
    return gateway_with_broker


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("get", "no executions"),
        ("sessions list", "no sessions"),
        ("rollout list", "no rollouts"),
        ("skills list", "no skills"),
        ("skills search nothing", "no skill matches 'nothing'"),
        ("profile list", "no profiles: `profile set` adds one"),
        ("tools search zzzz", "no tool matches 'zzzz'; without a query, all tools are listed"),
    ],
)
async def test_a_list_without_items_is_a_sentence(command: Command, words: str, sentence: str) -> None:
    for form in ("table", "wide", "name"):
        ended = await command(*words.split(), "-o", form)
        assert (ended.code, ended.out, ended.err) == (0, "", sentence + "\n")
    data = await command(*words.split(), "-o", "json")
    assert (json.loads(data.out), data.err) == ({"items": []}, "")


async def test_an_api_server_names_the_namespace_and_whether_it_is_served(
    api: FakeApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path / "kubeconfig", api.url)))
    ended = await call(capsys, "get", "-n", "agents", entry=kubectl_main)
    assert (ended.code, ended.out) == (0, "")
    assert ended.last.startswith("no executions in namespace agents: namespace agents is not served by mcp-exec; use")


async def test_a_refusal_says_each_thing_once(api: FakeApiServer, gateway: Gateway, command: Command) -> None:
    api.put(SECRETS, keys_secret(**{"team-a": key_entry(KEY, pools=["default"])}))
    await gateway.ask("GET", "/v1/executions")
    ended = await command("run", "-c", "1", "--pool", "long")
    assert (ended.code, ended.last.count("may use only")) == (3, 1)
    assert "poolRef.name" in ended.last
