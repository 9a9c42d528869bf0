"""The orchestrator in TypeScript, each of its examples as a program, at a gateway whose executions run in sandboxes."""

import asyncio
import json
import shutil
import sys
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from tests.component.client_typescript.conftest import Runtime, archive, consumer, node, runtime, tools
from tests.component.coming_from.conftest import broker, compiled, files, gateway, no_profile, spares
from tests.component.gateway.conftest import KEY, SBP, Gateway, pool
from tests.component.sandbox.test_listings import USERS, read_catalog
from tests.support.pace import paced
from tests.support.until import until

from mcp_exec_tools.overlays import load_shipped

__all__ = [
    "archive",
    "broker",
    "compiled",
    "consumer",
    "files",
    "gateway",
    "no_profile",
    "node",
    "runtime",
    "spares",
    "tools",
]

FOLDER = Path(__file__).parents[3] / "examples" / "typescript_orchestrator"
ROWS = len(json.dumps(USERS, separators=(",", ":")))
PRINTED = {
    "01-basic-supabase.ts": ["tables: users, orders", "called: supabase.list_tables", "task: completed"],
    "02-token-efficiency.ts": [f"a model reads {ROWS} characters of the rows, and 2 of the answer"],
    "03-multi-server-workflow.ts": [
        '{"userCount":30,"issueCreated":true,"docsFound":true}',
        "servers called: context7, github, supabase",
    ],
    "04-skills-reuse.ts": [
        "saved: db-backup-report Draft",
        "found: db-backup-report",
        "2 tables, last migration: users",
        "8 servers, 1 skills",
    ],
}


@pytest.fixture
def programs(consumer: Path) -> Path:
    """The example's folder, with the client's package installed."""
    return Path(shutil.copytree(FOLDER, consumer / "example"))


@pytest.mark.parametrize("name", ["context7", "github", "supabase"])
async def test_a_stand_in_has_tools_of_the_server_that_it_stands_for(name: str) -> None:
    declared = {tool.name: tool.to_json()["inputSchema"] for tool in read_catalog(name).tools}
    parameters = StdioServerParameters(command=sys.executable, args=[str(FOLDER / "standins.py"), name])
    async with asyncio.timeout(paced(30)), Client(parameters) as client:
        tools = (await client.list_tools()).tools
        overlay = load_shipped()[name]
        assert not overlay.results or set(overlay.needs) <= {tool.name for tool in tools}, "code gets rows, not an object"
        for tool in tools:
            schema = declared[tool.name]
            names = list(tool.input_schema.get("properties", {}))
            assert names == [each for each in schema.get("properties", {}) if each in names], "the order of arguments"
            assert set(schema.get("required", ())) <= set(names)


def test_each_example_is_tried() -> None:
    assert {path.name for path in FOLDER.glob("[0-9]*.ts")} == PRINTED.keys()


@pytest.mark.parametrize("name", PRINTED)
async def test_an_example_prints_what_its_task_returns(
    gateway: Gateway, programs: Path, runtime: Runtime, name: str
) -> None:
    environment = {"MCP_EXEC_GATEWAY": gateway.url, "MCP_EXEC_API_KEY": KEY}
    assert await runtime.run(programs / name, **environment) == PRINTED[name]
