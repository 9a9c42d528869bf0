"""The page of the chat service in Chromium."""

import shutil
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Page, async_playwright, expect
from tests.support.agent_gateway import AgentGateway, Run
from tests.support.model_servers.messages_api import MessagesApi
from tests.support.model_servers.script import refused, says, uses

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH: apt-get install chromium"),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(loop_scope="module")
async def page(chat_url: str) -> AsyncIterator[Page]:
    """The opened page. Whatever it writes to the console as an error fails the test."""
    problems: list[str] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        opened = await browser.new_page()
        opened.set_default_timeout(20_000)
        opened.on("pageerror", lambda error: problems.append(str(error)))
        opened.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
        await opened.goto(chat_url)
        yield opened
        await browser.close()
    assert [each for each in problems if "Failed to load resource" not in each] == []


async def send(page: Page, message: str) -> None:
    await page.get_by_label("Message").fill(message)
    await page.get_by_role("button", name="Send").click()


async def test_a_message_is_answered_directly_then_by_code(
    page: Page, gateway: AgentGateway, model: MessagesApi
) -> None:
    gateway.runs = [Run(stdout="86 orders\n")]
    model.rewrite(
        [uses("get_stock", sku="P01")], [says("13 rugs.")], [uses("execute_code", code="print(1)")], [says("86.")]
    )
    await send(page, "How many rugs?")
    await expect(page.locator(".assistant")).to_have_text("13 rugs.")
    await expect(page.locator(".step summary").first).to_contain_text('call: get_stock {"sku": "P01"}')
    await expect(page.locator("#tokens")).to_contain_text("Tokens of this answer")
    await page.get_by_label("use_code_execution").check()
    await expect(page.locator("#log > *")).to_have_count(0)
    await send(page, "How many orders are pending?")
    await expect(page.locator(".assistant")).to_have_text("86.")
    await expect(page.locator(".step summary")).to_contain_text(["code: print(1)", "output: 86 orders", "execute"])


async def test_the_page_shows_errors_and_goes_on(page: Page, model: MessagesApi) -> None:
    model.rewrite(refused(400), [says("Hello.")])
    await send(page, "Hello?")
    await expect(page.locator(".error")).to_contain_text("Error: Error code: 400")
    await send(page, "   ")
    await expect(page.locator(".error").nth(1)).to_contain_text("Error: message: String should match")
    await send(page, "Hello?")
    await expect(page.locator(".assistant")).to_have_text("Hello.")


async def test_markup_of_the_model_is_text(page: Page, model: MessagesApi) -> None:
    text = "<img src=x onerror=alert(1)><b>bold</b>"
    model.rewrite([says(text)])
    await send(page, "<i>Hello</i>")
    await expect(page.locator(".assistant")).to_have_text(text)
    await expect(page.locator("#log img, #log b, #log i")).to_have_count(0)


async def test_an_answer_can_be_stopped(page: Page, gateway: AgentGateway, model: MessagesApi) -> None:
    gateway.runs = [Run(hangs=True)]
    model.rewrite([uses("execute_code", code="while True: pass")])
    await page.get_by_label("use_code_execution").check()
    await send(page, "Wait.")
    await expect(page.locator(".step summary")).to_contain_text(["code: while True: pass"])
    await page.get_by_role("button", name="Stop").click()
    await expect(page.locator(".error")).to_have_text("stopped")
    await expect(page.get_by_role("button", name="Send")).to_be_enabled()
