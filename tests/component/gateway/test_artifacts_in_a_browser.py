"""Hostile artifacts, opened by their links in Chromium: no script runs, and nothing connects to another address."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.async_api import BrowserContext, async_playwright
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from tests.component.broker.servers import serving_app
from tests.component.gateway.conftest import Gateway
from tests.component.gateway.test_artifacts import produce
from tests.support.broker import FakeBroker
from tests.support.until import until

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH: apt-get install chromium")

HTML, SVG = "text/html", "image/svg+xml"
HINTS = '<link rel=preconnect href="URL"><link rel=dns-prefetch href="URL"><link rel=prerender href="URL">'
SCRIPT = "fetch('URL');document.title='ran'"
REQUESTS = (
    '<meta name=referrer content=unsafe-url><meta http-equiv=refresh content="0;url=URL"><base href="URL">'
    '<link rel=stylesheet href="URL"><link rel=icon href="URL"><link rel=prefetch href="URL">'
    '<link rel=preload as=fetch href="URL"><link rel=modulepreload href="URL"><link rel=manifest href="URL">'
    "<style>@import 'URL';body{background:url(URL)}</style><img src=x><img src='URL' attributionsrc='URL'>"
    "<iframe src='URL'></iframe><object data='URL'></object><embed src='URL'><video src='URL' autoplay></video>"
    "<form action='URL'><input autofocus onfocus=\"SCRIPT\"></form>"
)
ARTIFACTS = {
    "scripts": (HTML, f'<script>{SCRIPT}</script><img src=x onerror="{SCRIPT}"><body onload="{SCRIPT}">'),
    "frames": (HTML, f"<iframe srcdoc='<script>{SCRIPT}</script>{HINTS}'></iframe>".replace("='URL'", "=URL")),
    "requests": (HTML, REQUESTS.replace("SCRIPT", SCRIPT)),
    "hints": (HTML, HINTS),
    "another character set": (HTML, f"<meta charset=utf-7>+ADw-script+AD4-{SCRIPT}+ADw-/script+AD4-"),
    "speculation": (HTML, '<script type=speculationrules>{"prefetch":[{"source":"list","urls":["URL"]}]}</script>'),
    "a picture": (
        SVG,
        f"<svg xmlns='http://www.w3.org/2000/svg' onload=\"{SCRIPT}\"><script>{SCRIPT}</script><image href='URL'/>"
        "<use href='URL#a'/><foreignObject><link xmlns='http://www.w3.org/1999/xhtml' rel='preconnect' href='URL'/>"
        "</foreignObject></svg>",
    ),
    "a style sheet of a picture": (
        SVG,
        "<?xml version='1.0'?><?xml-stylesheet type='text/xsl' href='URL'?><svg xmlns='http://www.w3.org/2000/svg'/>",
    ),
    "text": ("text/plain", f"<script>{SCRIPT}</script>"),
    "JSON": ("application/json", f'{{"a": "<script>{SCRIPT}</script>"}}'),
    "an image that is none": ("image/png", f"<html><script>{SCRIPT}</script>"),
}


@dataclass
class Elsewhere:
    """Another address, which counts its connections."""

    url: str = ""
    connections: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Elsewhere"]:
        async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections.append("connected")
            writer.close()

        async with await asyncio.start_server(note, "127.0.0.1", 0) as server:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            yield self


@pytest.fixture
def gateway(gateway_with_broker: Gateway) -> Gateway:
    return gateway_with_broker


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[BrowserContext]:
    """A browser with a profile, as users have one: others never connect in advance."""
    async with async_playwright() as playwright:
        context = await playwright.chromium.launch_persistent_context(
            tmp_path,
            executable_path=CHROMIUM,
            args=["--no-sandbox"],
            ignore_default_args=["--disable-background-networking"],
        )
        yield context
        await context.close()


async def open_page(browser: BrowserContext, url: str) -> str:
    """Open a page, wait until it has loaded and looked for its icon, and return its title."""
    page = await browser.new_page()
    await page.goto(url, wait_until="networkidle", timeout=20_000)
    title = await page.title()
    await page.close()
    return title


@pytest.mark.parametrize("name", ARTIFACTS)
async def test_an_artifact_in_a_browser_runs_nothing_and_connects_to_nobody(
    gateway: Gateway, broker: FakeBroker, browser: BrowserContext, name: str
) -> None:
    media_type, content = ARTIFACTS[name]
    async with Elsewhere().listening() as elsewhere:
        content = content.replace("URL", elsewhere.url)
        execution = await produce(gateway, broker, ("a", media_type, content.encode()))
        (item,) = (await gateway.ask("GET", f"/v1/executions/{execution}/artifacts")).json["items"]
        assert await open_page(browser, item["url"]) != "ran"
        assert elsewhere.connections == []


async def test_a_page_without_the_headers_of_artifacts_does_connect(browser: BrowserContext) -> None:
    """What makes the test above mean something."""
    async with Elsewhere().listening() as elsewhere:

        async def page(request: Request) -> Response:
            return HTMLResponse(HINTS.replace("URL", elsewhere.url))

        async with serving_app(Starlette(routes=[Route("/", page)])) as url:
            await open_page(browser, url)
            await until(lambda: elsewhere.connections)
