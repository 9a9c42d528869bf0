"""The examples of the page about the TypeScript client, compiled and run as they are printed."""

import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.component.client_typescript.conftest import Runtime
from tests.component.client_typescript.test_gateway import SMOKE, answering
from tests.component.gateway.conftest import KEY, Gateway, api
from tests.support.api_server import FakeApiServer
from tests.support.pace import paced
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


def write_programs(folder: Path) -> dict[str, str]:
    """Write the programs of the pages into a folder, and return them by their names."""
    programs = dict(read_programs())
    assert len(programs) > len(PAGES)
    for name, text in programs.items():
        (folder / f"{name}.ts").write_text(text)
    return programs


def test_the_examples_have_no_errors_of_types_in_a_project_that_installs_the_package(
    consumer: Path, tools: Path, node: Path
) -> None:
    write_programs(consumer)
    shutil.copy(SMOKE, consumer)
    command = [node, tools / "node_modules/typescript/bin/tsc", "--project", consumer]
    done = subprocess.run(command, capture_output=True, text=True, timeout=paced(100), check=False)
    assert done.returncode == 0, done.stdout


async def test_each_example_prints_what_the_page_shows(gateway: Gateway, consumer: Path, runtime: Runtime) -> None:
    for name, text in write_programs(consumer).items():
        shown = re.findall(r"^ *// -> ?(.*)$", text, re.MULTILINE)
        printed = await runtime.run(consumer / f"{name}.ts", MCP_EXEC_GATEWAY=gateway.url, MCP_EXEC_API_KEY=KEY)
        assert [line.replace("'", '"') for line in printed] == shown, name
