"""Web pages of other origins: which of them a browser lets use the API and `/mcp`."""

import shutil

import pytest
from playwright.async_api import async_playwright
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route
from tests.component.broker.servers import serving_app
from tests.component.gateway.conftest import KEY, serving
from tests.support.api_server import FakeApiServer

PAGE = "https://ide.example"
CHROMIUM = shutil.which("chromium")
PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization, content-type, mcp-protocol-version, mcp-session-id",
}


@pytest.mark.parametrize("path", ["/mcp", "/v1/executions", "/v1/executions/a"])
async def test_a_preflight_of_an_allowed_origin_permits_method_and_headers(api: FakeApiServer, path: str) -> None:
    async with serving(api, allowed_origins=PAGE) as gateway:
        answer = await gateway.ask("OPTIONS", path, key=None, headers={"Origin": PAGE, **PREFLIGHT})
        assert answer.status == 200, answer.text
        assert answer.headers["Access-Control-Allow-Origin"] == PAGE
        assert "POST" in answer.headers["Access-Control-Allow-Methods"]
        for name in PREFLIGHT["Access-Control-Request-Headers"].split(", "):
            assert name in answer.headers["Access-Control-Allow-Headers"].lower(), name
        assert "Access-Control-Allow-Credentials" not in answer.headers, (
            "keys are in a header, which pages set themselves"
        )


async def test_a_preflight_of_another_origin_permits_nothing(api: FakeApiServer) -> None:
    async with serving(api, allowed_origins=PAGE) as gateway:
        for origin in ("https://evil.example", "null", "http://ide.example"):
            answer = await gateway.ask("OPTIONS", "/mcp", key=None, headers={"Origin": origin, **PREFLIGHT})
            assert answer.status >= 400
            assert "Access-Control-Allow-Origin" not in answer.headers


async def test_responses_and_refusals_can_be_read_by_an_allowed_page_and_by_no_other(api: FakeApiServer) -> None:
    async with serving(api, allowed_origins=PAGE) as gateway:
        for key, status in ((KEY, 200), ("mcpx_wrong", 401)):
            for origin, allowed in ((PAGE, PAGE), ("https://evil.example", None)):
                answer = await gateway.ask("GET", "/v1/executions", key=key, headers={"Origin": origin})
                assert answer.status == status
                assert answer.headers.get("Access-Control-Allow-Origin") == allowed
                assert "Origin" in answer.headers.get("Vary", "")


async def test_without_allowed_origins_no_response_permits_one(api: FakeApiServer) -> None:
    async with serving(api) as gateway:
        answer = await gateway.ask("OPTIONS", "/mcp", key=None, headers={"Origin": PAGE, **PREFLIGHT})
        assert answer.status == 405
        answer = await gateway.ask("GET", "/v1/executions", headers={"Origin": PAGE})
        assert {name for name in answer.headers if name.lower().startswith("access-control")} == set()


SCRIPT = """async ([url, key]) => {
  const send = async (id, method, params, more) => {
    const response = await fetch(url + "/mcp", {
      method: "POST",
      headers: {"Authorization": "Bearer " + key, "Content-Type": "application/json",
                "Accept": "application/json, text/event-stream", ...more},
      body: JSON.stringify({jsonrpc: "2.0", id, method, params}),
    });
    return [response.status, response.headers.get("Mcp-Session-Id"), await response.text()];
  };
  try {
    const client = {name: "page", version: "1"};
    const [, session] = await send(1, "initialize", {protocolVersion: "2025-11-25", capabilities: {}, clientInfo: client});
    const [status, , text] = await send(2, "tools/list", {}, {"Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-11-25"});
    return [status, text];
  } catch (error) {
    return [0, String(error)];
  }
}"""  # noqa: E501 - it reads as one program


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH: apt-get install chromium")
async def test_a_page_in_a_browser_uses_the_endpoint_only_from_an_allowed_origin(api: FakeApiServer) -> None:
    page = Starlette(routes=[Route("/", lambda _: HTMLResponse("<title>page</title>"))])
    async with serving_app(page) as allowed, serving_app(page) as other, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        async with serving(api, allowed_origins=allowed) as gateway:
            for origin, expected in ((allowed, 200), (other, 0)):
                opened = await browser.new_page()
                await opened.goto(origin)
                status, text = await opened.evaluate(SCRIPT, [gateway.url, KEY])
                assert status == expected, text
                assert ("run_code" in text) == (expected == 200)
        await browser.close()
