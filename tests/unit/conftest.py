"""What the machine of whoever runs the tests must not change."""

import pytest


@pytest.fixture(autouse=True)
def no_cache_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operator, gateway and broker refuse settings that they don't know, and this one is of the scripts in `hack`."""
    monkeypatch.delenv("MCP_EXEC_CACHE", raising=False)
