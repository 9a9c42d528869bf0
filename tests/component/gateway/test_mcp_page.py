"""docs/agents/mcp.md: its settings of clients are valid, the programs in them run, and its tables are complete."""

import json
import re
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from tests.component.gateway.mcp_client import MODERN
from tests.component.gateway.test_mcp_bridge import command
from tests.component.gateway.test_mcp_runs import Scene, scene
from tests.support.pages import DOCS

from mcp_exec_client.cli.main import build_parser
from mcp_exec_gateway.features.mcp.code_mode.definitions import TOOLS
from mcp_exec_gateway.features.mcp.request import HEADER_PREFIX, McpOptions

__all__ = ["scene"]
PAGE = (DOCS / "agents/mcp.md").read_text()
SETTINGS = [json.loads(text) for text in re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)]
SERVERS: list[dict[str, Any]] = [
    server for settings in SETTINGS for servers in settings.values() for server in servers.values()
]


def test_every_setting_names_the_endpoint_and_a_key() -> None:
    assert len(SERVERS) == 5
    for server in SERVERS:
        if "url" in server:
            assert server["url"] == "http://localhost:8080/mcp"
            assert server["headers"] == {"Authorization": "Bearer mcpx_KEY"}
        else:
            assert server["env"] == {"MCP_EXEC_API_KEY": "mcpx_KEY"}
            assert build_parser().parse_args(server["args"]).gateway == "http://localhost:8080"


async def test_the_programs_of_the_settings_run(scene: Scene) -> None:
    for server in SERVERS:
        if "command" not in server:
            continue
        arguments = [text.replace("http://localhost:8080", scene.gateway.url) for text in server["args"]]
        base = command(scene.gateway.url)
        parameters = StdioServerParameters(
            command=base.command,
            args=["-m", "mcp_exec_client", *arguments],
            env={**(base.env or {})},
        )
        async with Client(parameters, mode=MODERN) as client:
            assert "run_code" in [tool.name for tool in (await client.list_tools()).tools]


@pytest.mark.parametrize("language", ["python", "js"])
def test_the_programs_on_the_page_name_the_same_endpoint(language: str) -> None:
    (program,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert '"http://localhost:8080/mcp"' in program
    if language == "python":
        compile(program, "mcp.md", "exec")


def test_the_tables_have_every_tool_and_every_parameter_with_its_header() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| `(Mcp-[\w-]+)` \|", PAGE, re.MULTILINE))
    names = [field.alias or name for name, field in McpOptions.model_fields.items()]
    assert list(rows) == names
    for name, header in rows.items():
        assert header.lower().removeprefix(HEADER_PREFIX).replace("-", "") == name.lower()
    assert all(f"| `{tool.name}` |" in PAGE for tool in TOOLS)
