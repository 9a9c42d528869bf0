"""The developer's environment, as tests must not see it."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def no_cache_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove MCP_EXEC_CACHE: the scripts in `hack` read it, and processes refuse an unknown MCP_EXEC_ setting."""
    monkeypatch.delenv("MCP_EXEC_CACHE", raising=False)


@pytest.fixture(autouse=True)
def no_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Hide the developer's profiles, gateway and kubeconfig from the command. Return where its profiles would be."""
    for name in ("GATEWAY", "API_KEY", "PROFILE", "NAMESPACE", "PLAIN_HTTP"):
        monkeypatch.delenv(f"MCP_EXEC_{name}", raising=False)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    return tmp_path / "settings" / "mcp-exec" / "config.toml"
