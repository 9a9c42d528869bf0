"""The examples of the page about the TypeScript client, compiled and run as they are printed."""

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest
from tests.component.client_typescript.conftest import Runtime, check_types
from tests.component.client_typescript.test_gateway import answering
from tests.component.gateway.conftest import KEY, Gateway, api
from tests.support.api_server import FakeApiServer
from tests.support.pages import DOCS

__all__ = ["api"]

PAGES = ("services/typescript-client.md", "../client/typescript/README.md")
BLOCK = re.compile(r"^```typescript\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read_programs() -> Iterator[tuple[str, str]]:
    """Yield each program of the pages with a name that says its place."""
    for page in PAGES:
        text = (DOCS / page).read_text()
        for match in BLOCK.finditer(text):
            yield f"{Path(page).stem}-{text.count(chr(10), 0, match.start()) + 1}", match[1]


@pytest.fixture
async def gateway(api: FakeApiServer) -> AsyncIterator[Gateway]:
    async with answering(api) as made:
        yield made


async def test_each_example_compiles_and_prints_what_the_page_shows(
    gateway: Gateway, consumer: Path, runtimes: Sequence[Runtime], tools: Path, node: Path
) -> None:
    programs = dict(read_programs())
    assert len(programs) > len(PAGES)
    for name, text in programs.items():
        (consumer / f"{name}.ts").write_text(text)
    await check_types(tools, node, consumer)
    for name, text in programs.items():
        shown = re.findall(r"^ *// -> ?(.*)$", text, re.MULTILINE)
        for runtime in runtimes:
            printed = await runtime.run(consumer / f"{name}.ts", MCP_EXEC_GATEWAY=gateway.url, MCP_EXEC_API_KEY=KEY)
            assert [line.replace("'", '"') for line in printed] == shown, (name, runtime.name)
