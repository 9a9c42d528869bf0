"""The documentation site in Chromium: its front page, a search, a diagram, the colours and the versions."""

import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import ConsoleMessage, Page, async_playwright, expect
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from tests.component.broker.servers import serving_app
from tests.component.site.conftest import ADDRESS
from tests.support.pace import paced

from mcp_exec_api.wire.version import RELEASE

FOLDER = urlsplit(ADDRESS).path
"""Folder of its host that the site was built for."""
MISSING = "docs/platform/deep/missing.html"
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH: apt-get install chromium")


@pytest_asyncio.fixture
async def page(site: Path) -> AsyncIterator[Page]:
    """The front page. An error on the console, and a request to anywhere else, fails the test."""
    problems: list[str] = []
    app = Starlette(routes=[Mount(FOLDER, StaticFiles(directory=site, html=True))])
    async with serving_app(app) as url, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        opened = await browser.new_page(color_scheme="light", viewport={"width": 1400, "height": 1000})
        opened.set_default_timeout(paced(20) * 1000)
        expect.set_options(timeout=paced(20) * 1000)
        opened.on("pageerror", lambda error: problems.append(str(error)))
        opened.on("console", lambda line: problems.append(line.text) if is_problem(line) else None)
        opened.on("request", lambda request: problems.append(request.url) if not is_own(request.url, url) else None)
        await opened.goto(f"{url}{FOLDER}/")
        await expect(opened).to_have_url(re.compile(rf"/{re.escape(RELEASE)}/index\.html$"))
        yield opened
        await browser.close()
    assert problems == []


def is_problem(line: ConsoleMessage) -> bool:
    """Return whether it is an error, and not the one that Chromium writes for the page of a missing address."""
    return line.type == "error" and not line.location["url"].endswith(MISSING)


def is_own(address: str, url: str) -> bool:
    return address.startswith((url, "blob:", "data:"))


async def test_the_front_page_leads_to_the_pages_of_the_navigation(page: Page) -> None:
    await expect(page.locator("h1")).to_have_text(re.compile("mcp-exec"))
    await page.get_by_role("link", name="Platform teams").first.click()
    await page.get_by_role("link", name="Pools", exact=True).first.click()
    await expect(page.locator("h1")).to_contain_text("Pools")


async def test_a_search_finds_the_page_about_a_field(page: Page) -> None:
    await page.get_by_role("button", name="Search").click()
    await page.get_by_role("combobox", name="Search").fill("runtimeClassName")
    found = page.get_by_role("option", name="Isolation", exact=True)
    await expect(found).to_contain_text("Pools")
    await found.click()
    await expect(page).to_have_url(re.compile(r"/docs/platform/pools\.html"))


@pytest.mark.parametrize(("words", "title"), [("sso", "What is not here"), ("production", "Production checklist")])
async def test_a_search_answers_what_a_platform_team_asks_first(page: Page, words: str, title: str) -> None:
    await page.get_by_role("button", name="Search").click()
    await page.get_by_role("combobox", name="Search").fill(words)
    await expect(page.get_by_role("option").first).to_contain_text(title)


async def test_a_missing_address_at_any_depth_has_a_page_with_the_navigation(page: Page) -> None:
    response = await page.goto(page.url.replace("index.html", MISSING))
    assert response is not None
    assert response.status == 404
    await expect(page.locator("h1")).to_have_text("No page here")
    await expect(page.locator("#missing")).to_contain_text(MISSING)
    logo = page.locator(".md-header .md-logo svg")
    assert await logo.evaluate("element => element.getBoundingClientRect().height") < 60, "the style is missing"
    await page.get_by_role("link", name="the list of all pages").click()
    await expect(page.locator("h1")).to_contain_text("Documentation")


async def test_a_page_can_be_copied_as_markdown(page: Page) -> None:
    await page.goto(page.url.replace("index.html", "docs/platform/pools.html"))
    address = await page.locator("[data-md-copy-url]").get_attribute("data-md-copy-url")
    found = await page.request.get(urljoin(page.url, address))
    assert (await found.text()).startswith("# Pools\n")


async def test_a_diagram_is_drawn(page: Page) -> None:
    await page.goto(page.url.replace("index.html", "docs/internals/architecture.html"))
    drawn = page.locator("div.mermaid").first
    await expect(drawn).to_be_visible()
    assert await drawn.evaluate("element => element.getBoundingClientRect().height") > 50


async def test_colours_follow_the_system_and_the_reader(page: Page) -> None:
    body = page.locator("body")
    await expect(body).to_have_attribute("data-md-color-scheme", "default")
    await page.emulate_media(color_scheme="dark")
    await expect(body).to_have_attribute("data-md-color-scheme", "slate")
    await page.get_by_title("Use the light colours").click()
    await expect(body).to_have_attribute("data-md-color-scheme", "default")


async def test_a_page_offers_the_other_versions(page: Page) -> None:
    offered = page.locator(".md-version__link")
    await expect(offered).to_have_text([RELEASE, "0.0.1"])
