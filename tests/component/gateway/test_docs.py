"""The API's description and the metrics: from the gateway's own files, switched off, and on different ports."""

import asyncio
import re
import socket
from typing import Any

import pytest
from pydantic import ValidationError
from tests.component.gateway.conftest import KEY, Gateway, serving
from tests.support.api_server import FakeApiServer

from mcp_exec_common.process.http_server import build_server
from mcp_exec_gateway.app import build_metrics_app
from mcp_exec_gateway.settings import Settings


async def test_the_page_loads_nothing_from_elsewhere_and_runs_no_inline_script(gateway: Gateway) -> None:
    page = await gateway.ask("GET", "/docs", key=None)
    assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "//" not in page.text
    assert re.findall(r"<script[^>]*>(.*?)</script>", page.text) == ["", ""]
    links = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert links
    for link in links:
        file = await gateway.ask("GET", f"/{link}", key=None) if not link.endswith(".png") else None
        assert file is None or (file.status, bool(file.text)) == (200, True)
        assert file is None or file.headers["X-Content-Type-Options"] == "nosniff"
    async with gateway.request("GET", "/docs/favicon.png", key=None) as icon:
        assert (icon.status, (await icon.read())[1:4]) == (200, b"PNG")
    assert "http" not in (await gateway.ask("GET", "/docs/start.js", key=None)).text


@pytest.mark.parametrize("file", ["core.py", "..%2fcore.py", "%2e%2e/core.py", "redoc.standalone.js", "", "start.js/x"])
async def test_no_other_file_is_served(gateway: Gateway, file: str) -> None:
    assert (await gateway.ask("GET", f"/docs/{file}", key=None)).status == 404


async def test_docs_can_be_switched_off(api: FakeApiServer) -> None:
    async with serving(api, docs=False) as gateway:
        for path in ("/docs", "/docs/start.js", "/docs/swagger-ui.css", "/openapi.json", "/metrics", "/redoc"):
            assert (await gateway.ask("GET", path, key=None)).status == 404, path
        assert (await gateway.ask("GET", "/healthz", key=None)).status == 200


async def test_metrics_are_not_served_where_callers_are(api: FakeApiServer) -> None:
    """They name namespaces and what these spend, and need no authentication."""
    async with serving(api) as gateway:
        for key in (None, KEY):
            assert (await gateway.ask("GET", "/metrics", key=key)).status == 404
        app = build_metrics_app(gateway.dependencies)
        server = build_server(app, port=0, keep_alive_seconds=5, shutdown_seconds=1)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            serving_metrics = asyncio.create_task(server.serve(sockets=[listener]))
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            async with gateway.session.get(f"{url}/metrics") as answer:
                assert "mcp_exec_gateway_requests_total" in await answer.text()
            for path in ("/v1/executions", "/docs", "/openapi.json"):
                async with gateway.session.get(url + path) as answer:
                    assert answer.status == 404
            server.should_exit = server.force_exit = True
            await serving_metrics


async def test_pages_without_a_caller_have_the_limit_of_their_address(api: FakeApiServer) -> None:
    async with serving(api, anonymous_requests_per_minute=3) as gateway:
        gateway.stop_refills()
        paths = ("/docs", "/openapi.json", "/docs/start.js")
        assert [(await gateway.ask("GET", path, key=None)).status for path in paths] == [200, 200, 200]
        for path in paths:
            assert (await gateway.ask("GET", path, key=None)).status == 429
        assert (await gateway.ask("GET", "/healthz", key=None)).status == 200


def test_the_port_of_the_api_is_refused_for_metrics() -> None:
    given: Any = {"namespaces": ("agents",), "sandbox_key_folder": "unused", "release_namespace": "r"}
    assert Settings(**given).metrics_port == 8085
    for port in (8080, 9000):
        with pytest.raises(ValidationError, match=f"{port} is the port of the API"):
            Settings(**given, port=port, metrics_port=port)


async def test_the_address_of_the_gateway_names_what_it_has(gateway: Gateway, api: FakeApiServer) -> None:
    index = await gateway.ask("GET", "/", key=None)
    assert (index.status, index.json["service"]) == (200, "mcp-exec gateway")
    paths = {name: index.json[name] for name in ("mcp", "api", "docs", "openapi")}
    assert paths == {"mcp": "/mcp", "api": "/v1", "docs": "/docs", "openapi": "/openapi.json"}
    async with serving(api, docs=False) as bare:
        assert set((await bare.ask("GET", "/", key=None)).json) == {"service", "mcp", "api"}
