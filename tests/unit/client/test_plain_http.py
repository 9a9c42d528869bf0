"""A key is not sent over a network in plain text without a warning."""

import warnings

import pytest

from mcp_exec_client import AsyncClient, PlainHttpWarning

EXPOSED = [
    "http://gateway.example",
    "http://gateway.agents.svc:8080/prefix",
    "http://10.96.0.17",
    "http://[fd00::17]:8080",
    "http://localhost.example",
    "http://127.0.0.1.example",
]
PRIVATE = [
    "https://gateway.example",
    "http://localhost:8080",
    "http://LOCALHOST.:8080",
    "http://gateway.localhost",
    "http://127.0.0.1:8080",
    "http://127.8.9.10",
    "http://[::1]:8080",
]


@pytest.mark.parametrize("url", EXPOSED)
async def test_a_key_for_another_machine_over_plain_http_is_warned_about_once(url: str) -> None:
    with pytest.warns(PlainHttpWarning, match="over plain HTTP") as found:
        client = AsyncClient(url, api_key="secret-key")
    await client.aclose()
    (one,) = found
    assert url in str(one.message)
    assert "MCP_EXEC_PLAIN_HTTP=yes" in str(one.message)
    assert "secret-key" not in str(one.message)
    assert one.filename == __file__, "the warning shows who makes the client"


@pytest.mark.parametrize("url", EXPOSED)
async def test_a_function_that_returns_keys_is_a_key(url: str) -> None:
    with pytest.warns(PlainHttpWarning):
        await AsyncClient(url, api_key=lambda: "secret-key").aclose()


@pytest.mark.parametrize("url", PRIVATE)
async def test_what_nobody_can_read_is_not_warned_about(url: str) -> None:
    await AsyncClient(url, api_key="k").aclose()  # warnings are errors


async def test_a_client_without_a_key_sends_none() -> None:
    await AsyncClient(EXPOSED[0]).aclose()


async def test_plain_http_can_be_intended(monkeypatch: pytest.MonkeyPatch) -> None:
    await AsyncClient(EXPOSED[0], api_key="k", plain_http=True).aclose()
    monkeypatch.setenv("MCP_EXEC_PLAIN_HTTP", "yes")
    await AsyncClient(EXPOSED[0], api_key="k").aclose()
    monkeypatch.setenv("MCP_EXEC_PLAIN_HTTP", "no")
    with pytest.warns(PlainHttpWarning):
        await AsyncClient(EXPOSED[0], api_key="k").aclose()


async def test_the_warning_can_be_silenced_by_its_class() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlainHttpWarning)
        await AsyncClient(EXPOSED[0], api_key="k").aclose()
