from pathlib import Path

import pytest

from mcp_exec_broker.settings import Settings as BrokerSettings
from mcp_exec_common.process.settings import PREFIX, ProcessSettings, SettingsError
from mcp_exec_gateway.settings import Settings as GatewaySettings
from mcp_exec_operator.settings import Settings as OperatorSettings

LEAST = {"NAMESPACES": "agents", "RELEASE_NAMESPACE": "system"}
KEYS = {
    OperatorSettings: "SANDBOX_KEY_SECRET",
    GatewaySettings: "SANDBOX_KEY_FOLDER",
    BrokerSettings: "SANDBOX_KEY_FOLDER",
}


@pytest.fixture(params=KEYS, ids=["operator", "gateway", "broker"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[ProcessSettings]:
    """Return the settings class of a process, with the required settings in the environment."""
    kind: type[ProcessSettings] = request.param
    for name, value in {**LEAST, KEYS[request.param]: "key"}.items():
        monkeypatch.setenv(PREFIX + name, value)
    return kind


def test_required_settings_are_enough(kind: type[ProcessSettings]) -> None:
    settings = kind.from_environment()
    assert (settings.namespaces, settings.release_namespace) == (("agents",), "system")
    assert (settings.kubeconfig, settings.log_level) == (None, "INFO")


@pytest.mark.parametrize("given", ["a,b", " a , b ", '["a", "b"]', ' ["a","b"] '])
def test_namespaces_are_a_list_with_commas_or_in_json(
    kind: type[ProcessSettings], given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_EXEC_NAMESPACES", given)
    assert kind.from_environment().namespaces == ("a", "b")


def test_the_namespace_of_the_release_is_never_served(
    kind: type[ProcessSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_EXEC_NAMESPACES", "agents,system")
    with pytest.raises(SettingsError, match=r"RELEASE_NAMESPACE: .*system is the release's own namespace"):
        kind.from_environment()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NAMESPACES", ""),
        ("NAMESPACES", "a,,b"),
        ("NAMESPACES", "a,a"),
        ("NAMESPACES", "[1"),
        ("NAMESPACES", "[]"),
        ("PORT", "65536"),
        ("LOG_LEVEL", "loud"),
        ("SHUTDOWN_SECONDS", "soon"),
        ("UNKNOWN", "1"),
    ],
)
def test_an_invalid_setting_is_refused_by_its_name(
    kind: type[ProcessSettings], name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PREFIX + name, value)
    with pytest.raises(SettingsError, match=PREFIX + name):
        kind.from_environment()


def test_the_place_of_the_sandbox_key_is_required(kind: type[ProcessSettings], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREFIX + KEYS[kind], "")
    with pytest.raises(SettingsError, match=PREFIX + KEYS[kind]):
        kind.from_environment()


def test_all_invalid_settings_are_reported_at_once(
    kind: type[ProcessSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_EXEC_PORT", "none")
    monkeypatch.setenv("MCP_EXEC_LOG_LEVEL", "loud")
    with pytest.raises(SettingsError) as raised:
        kind.from_environment()
    assert sorted(line.partition(":")[0] for line in str(raised.value).splitlines()) == [
        "MCP_EXEC_LOG_LEVEL",
        "MCP_EXEC_PORT",
    ]


def test_empty_means_unset(kind: type[ProcessSettings], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "LOG_LEVEL", "PORT"):
        monkeypatch.setenv(PREFIX + name, "")
    settings = kind.from_environment()
    assert (settings.kubeconfig, settings.log_level) == (None, "INFO")
    monkeypatch.setenv("MCP_EXEC_KUBECONFIG", "/k")
    monkeypatch.setenv("MCP_EXEC_LOG_LEVEL", "DEBUG")
    settings = kind.from_environment()
    assert (settings.kubeconfig, settings.log_level) == (Path("/k"), "DEBUG")


def test_a_process_has_a_level_of_logs_of_its_own(kind: type[ProcessSettings], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_EXEC_LOG_LEVEL", "WARNING")
    assert kind.from_environment().process_log_level == "WARNING"
    monkeypatch.setenv("MCP_EXEC_OWN_LOG_LEVEL", "debug")
    assert kind.from_environment().process_log_level == "DEBUG"


def test_each_setting_has_a_description(kind: type[ProcessSettings]) -> None:
    assert all(field.description for field in kind.model_fields.values())


@pytest.mark.parametrize(
    ("settings", "name"), [(GatewaySettings, "TRUSTED_PROXIES"), (BrokerSettings, "ALLOWED_ADDRESSES")]
)
def test_a_network_with_bits_of_a_host_is_refused_with_an_example(
    settings: type[ProcessSettings], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in {**LEAST, KEYS[settings]: "key", name: "fd00::/8,10.0.0.1/8"}.items():
        monkeypatch.setenv(PREFIX + variable, value)
    with pytest.raises(SettingsError, match=rf"{name}.1: it must be a network without bits of a host, for example 10"):
        settings.from_environment()
