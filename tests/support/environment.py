"""The developer's environment, as tests must not see it."""

import pytest


@pytest.fixture(autouse=True)
def no_cache_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove MCP_EXEC_CACHE: the scripts in `hack` read it, and processes refuse an unknown MCP_EXEC_ setting."""
    monkeypatch.delenv("MCP_EXEC_CACHE", raising=False)
