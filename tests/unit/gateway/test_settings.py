from pathlib import Path

import pytest

from mcp_exec_gateway.settings import PREFIX, Settings, load_settings

LEAST = {"NAMESPACES": "agents", "SANDBOX_KEY_FILE": "/keys/key", "RELEASE_NAMESPACE": "mcp-exec-system"}


@pytest.fixture(autouse=True)
def least(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in LEAST.items():
        monkeypatch.setenv(PREFIX + name, value)


def test_the_least_that_must_be_set_is_enough() -> None:
    settings = load_settings()
    assert (settings.namespaces, settings.port, settings.max_wait_seconds) == (("agents",), 8080, 310)
    assert (settings.kubeconfig, settings.max_body_bytes) == (None, 1024 * 1024)


@pytest.mark.parametrize("given", ["a,b", "a, b", '["a", "b"]', ' ["a","b"] '])
def test_namespaces_are_a_list_with_commas_or_in_json(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_EXEC_NAMESPACES", given)
    assert load_settings().namespaces == ("a", "b")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NAMESPACES", "a,,b"),
        ("NAMESPACES", "a,a"),
        ("NAMESPACES", "[1"),
        ("NAMESPACES", "[]"),
        ("PORT", "65536"),
        ("LOG_LEVEL", "loud"),
        ("MAX_BODY_BYTES", "1"),
        ("MAX_WAIT_SECONDS", "0"),
        ("MAX_WAITS", "none"),
        ("UNKNOWN", "1"),
    ],
)
def test_what_is_wrong_is_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREFIX + name, value)
    with pytest.raises(ValueError, match=rf"(?i){name}"):
        load_settings()


def test_empty_means_unset_where_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "API_KEYS_SECRET", "AUDIENCE"):
        monkeypatch.setenv(PREFIX + name, "")
    settings = load_settings()
    assert (settings.kubeconfig, settings.api_keys_secret, settings.audience) == (None, "", "")
    monkeypatch.setenv("MCP_EXEC_KUBECONFIG", "/k")
    monkeypatch.setenv("MCP_EXEC_LOG_LEVEL", "INFO")
    assert (load_settings().kubeconfig, load_settings().log_level) == (Path("/k"), "info")


def test_each_setting_says_what_it_is() -> None:
    assert all(field.description for field in Settings.model_fields.values())
