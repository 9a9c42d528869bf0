"""Proxies of the environment: addresses of this machine are reached without them, and errors name them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.component.gateway.commands import call
from tests.support.absent_gateway import AbsentGateway
from tests.support.ports import free_port

from mcp_exec_client import AsyncClient, Client
from mcp_exec_client.agent.providers.anthropic_messages import AnthropicProvider
from mcp_exec_client.agent.providers.openai import OpenAIProvider
from mcp_exec_client.errors import ClientMisconfigured, GatewayUnreachable, Unavailable
from mcp_exec_client.network import direct_transport, find_proxy
from mcp_exec_client.transport import NO_RETRIES

VARIABLES = ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
LOOPBACK = ("localhost", "127.0.0.1", "0.0.0.0", "[::ffff:127.0.0.1]")
BAD_GATEWAY = b"HTTP/1.1 503 No\r\nContent-Length: 12\r\nConnection: close\r\n\r\nno upstream."


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "MCP_EXEC_GATEWAY", "MCP_EXEC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@asynccontextmanager
async def proxy(answer: bytes = BAD_GATEWAY) -> AsyncIterator[str]:
    """Yield the address of a proxy that answers each request so."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def use_async(url: str) -> str:
    async with AsyncClient(url, api_key="k", retries=NO_RETRIES) as client:
        return (await client.submit("1")).name


async def use_blocking(url: str) -> str:
    def use() -> str:
        with Client(url, api_key="k", retries=NO_RETRIES) as client:
            return client.submit("1").name

    return await asyncio.to_thread(use)


USES: dict[str, Callable[[str], Coroutine[Any, Any, str]]] = {"async": use_async, "blocking": use_blocking}


@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize("host", LOOPBACK)
@pytest.mark.parametrize("use", USES.values(), ids=USES)
async def test_a_gateway_on_this_machine_is_reached_without_the_proxy(
    use: Any, host: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AbsentGateway("refused", away_seconds=0).running() as gateway, proxy() as address:
        monkeypatch.setenv(variable, address)
        assert await use(gateway.url.replace("localhost", host)) == "e1"


async def test_a_socks_proxy_does_not_matter_for_a_gateway_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    async with AbsentGateway("refused", away_seconds=0).running() as gateway:
        assert await use_async(gateway.url) == "e1"


async def test_a_proxy_of_an_unknown_kind_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "ftp://127.0.0.1:9")
    with pytest.raises(ClientMisconfigured, match=r"through the proxy ftp://127\.0\.0\.1:9 of the environment: "):
        await use_async("https://gateway.test")


async def test_a_command_reaches_a_gateway_on_this_machine_without_the_proxy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with AbsentGateway("refused", away_seconds=0).running() as gateway:
        ended = await call(capsys, "cancel", "e1", "--gateway", gateway.url, "--api-key", "k")
    assert (ended.code, ended.err) == (0, "")


@pytest.mark.parametrize("use", USES.values(), ids=USES)
async def test_an_error_names_the_proxy_without_its_password(use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_EXEC_PLAIN_HTTP", "yes")
    port = free_port()
    monkeypatch.setenv("HTTP_PROXY", f"http://user:secret@127.0.0.1:{port}")
    with pytest.raises(GatewayUnreachable) as unreachable:
        await use("http://gateway.test")
    assert str(unreachable.value).endswith(f": Connection refused (through the proxy http://127.0.0.1:{port})")
    async with proxy() as address:
        monkeypatch.setenv("HTTP_PROXY", address)
        with pytest.raises(Unavailable, match=f"503 http: .*no upstream. \\(through the proxy {address}\\)"):
            await use("http://gateway.test")


async def test_an_address_of_no_proxy_has_no_proxy_in_its_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_EXEC_PLAIN_HTTP", "yes")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "gateway.invalid")
    with pytest.raises(GatewayUnreachable) as caught:
        await use_async("http://gateway.invalid")
    assert "proxy" not in str(caught.value)


PROVIDERS = {
    "Anthropic": ("ANTHROPIC", lambda: AnthropicProvider("m")),
    "OpenAI": ("OPENAI", lambda: OpenAIProvider("m")),
}


@pytest.mark.parametrize(("name", "create"), PROVIDERS.values(), ids=PROVIDERS)
async def test_a_model_on_this_machine_is_reached_without_the_proxy(
    name: str, create: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv(f"{name}_API_KEY", "k")
    async with proxy(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}") as address:
        monkeypatch.setenv(f"{name}_BASE_URL", address)
        provider = create()
        response = await provider._sdk._client.get(address)  # noqa: SLF001
        assert response.status_code == 200
        await provider.aclose()


async def test_wrappers_are_generated_from_a_server_on_this_machine_without_the_proxy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    ended = await call(capsys, "servers", "generate", "--from-url", f"http://localhost:{port}/mcp", "--name", "s")
    assert f"http://localhost:{port}/mcp: Connection refused" in ended.err
    ended = await call(capsys, "servers", "generate", "--from-url", "http://server.test/mcp", "--name", "s")
    assert "http://server.test/mcp: Connection refused (through the proxy http://127.0.0.1:9)" in ended.err


@pytest.mark.parametrize(
    ("excluded", "url", "is_direct"),
    [
        ("10.96.0.0/12", "http://10.96.0.10:8080", True),
        ("10.96.0.0/12", "http://10.112.0.1", False),
        ("x.test, 10.96.0.1/12 ,y/z", "http://10.100.1.2", True),
        ("fd00::/8", "http://[fd00::1]:80", True),
        ("0.0.0.0/0", "http://gateway.test", False),
        ("0.0.0.0/33,10.0.0.0/a", "http://10.0.0.1", False),
    ],
)
def test_a_range_of_no_proxy_is_reached_directly(
    monkeypatch: pytest.MonkeyPatch, excluded: str, url: str, is_direct: bool
) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.test:3128")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, excluded)
        assert find_proxy(url) == (None if is_direct else "http://proxy.test:3128")
        assert (direct_transport(url, object) is not None) == is_direct
        assert (AsyncClient(url, api_key=None).transport.proxy is None) == is_direct
        monkeypatch.delenv(name)
