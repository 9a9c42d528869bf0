"""`mcp-exec mcp` under the SDK's stdio client: what the endpoint does, through standard input and output."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters
from tests.component.gateway.conftest import DEADLINE, KEY, serving
from tests.component.gateway.mcp_client import MODERN, REVISIONS
from tests.component.gateway.test_mcp_runs import Scene, ended, run, scene
from tests.support.pace import paced
from tests.support.until import until

from mcp_exec_client.json_body import MAX_REQUEST_BYTES
from mcp_exec_gateway.features.mcp.abandoned_runs import AbandonedRuns

__all__ = ["scene"]


def command(url: str, *options: str, key: str = KEY) -> StdioServerParameters:
    environment = {name: value for name, value in os.environ.items() if name.startswith(("COVERAGE_", "PYTHON"))}
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "mcp_exec_client", "mcp", "--gateway", url, *options],
        env={**environment, "MCP_EXEC_API_KEY": key, "XDG_CONFIG_HOME": "/nonexistent"},
    )


@asynccontextmanager
async def bridged(url: str, revision: str, *options: str, key: str = KEY, **settings: Any) -> AsyncIterator[Client]:
    mode = revision if revision == MODERN else "legacy"
    async with Client(command(url, *options, key=key), mode=mode, **settings) as client:
        yield client


@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_bridge_passes_progress_forms_results_and_cancellation(scene: Scene, revision: str) -> None:
    scene.gateway.dependencies.get(AbandonedRuns).grace_seconds = 0
    async with bridged(scene.gateway.url, revision, "--pool", "long", elicitation_callback=scene.fill_form) as client:
        running = run(client, scene, progress_callback=scene.note_progress)
        await scene.bind()
        scene.supervisor.say("progress", done=3, total=10, text="page 3\u2028ü")
        await until(lambda: scene.progress == [(3, 10, "page 3\u2028ü")])
        scene.wait_for_approval("a1")
        await until(lambda: scene.decisions)
        scene.finish()
        result = await ended(running)
        assert (result.is_error, result.structured_content["phase"]) == (False, "Succeeded")
        assert scene.gateway.executions[scene.name]["spec"]["poolRef"]["name"] == "long"
        with pytest.raises(MCPError, match="there is no tool 'nothing'"):
            await client.call_tool("nothing", {})
        first, again = scene.name, run(client, scene)
        await until(lambda: len(scene.gateway.executions) == 2)
        (second,) = scene.gateway.executions.keys() - {first}
        again.cancel()
        await asyncio.gather(again, return_exceptions=True)
        await until(lambda: scene.gateway.executions[second]["spec"].get("cancelRequested"))


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_run_goes_on_at_another_replica_if_one_ends(scene: Scene, revision: str) -> None:
    async with serving(scene.gateway.api, sandbox_port=scene.supervisor.port) as second, forwarding() as proxy:
        proxy.target = scene.gateway.url
        async with bridged(proxy.url, revision) as client:
            running = run(client, scene, progress_callback=scene.note_progress)
            await scene.bind()
            scene.supervisor.say("stdout", text="one\n")
            await until(lambda: scene.progress)
            proxy.target = second.url
            proxy.cut()
            await until(lambda: second.dependencies.index.wait_count)
            scene.finish()
            result = await ended(running)
    assert result.structured_content["phase"] == "Succeeded"
    assert len(scene.gateway.executions) == 1


async def test_what_fails_before_the_endpoint_is_an_error_of_the_protocol(scene: Scene) -> None:
    async with bridged(scene.gateway.url, MODERN, key="mcpx_wrong") as client:
        with pytest.raises(MCPError, match="the key is missing, wrong or removed"):
            await client.list_tools()
    async with bridged(scene.gateway.url, MODERN, "--mode", "all") as client:
        with pytest.raises(MCPError, match="mode: Input should be 'code'"):
            await client.list_tools()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://gateway.invalid"])
async def test_an_address_without_a_gateway_ends_the_bridge_within_some_ten_seconds(url: str) -> None:
    parameters = command(url)
    process = await asyncio.create_subprocess_exec(
        *(parameters.command, *parameters.args),
        env={**os.environ, **(parameters.env or {})},
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    async with asyncio.timeout(paced(25)):  # ten, and the start of a program on a busy machine
        notes = (await process.stderr.read()).decode()
        assert await process.wait() == 4
    assert f"mcp-exec: GET {url}/healthz: " in notes
    assert notes.endswith("; check --gateway\n")


async def test_lines_that_are_no_messages_are_answered_and_the_end_of_input_ends_the_bridge(scene: Scene) -> None:
    parameters = command(scene.gateway.url)
    process = await asyncio.create_subprocess_exec(
        *(parameters.command, *parameters.args),
        env={**os.environ, **(parameters.env or {})},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    ping = '{"jsonrpc": "2.0", "id": %s, "method": "ping", "params": {"value": %s}}'
    large = json.dumps("x" * (MAX_REQUEST_BYTES + 1))
    lines = ["{", "", "[]", ping % ("[1]", 1), ping % (2, "NaN"), ping % (3, large), ping % (4, 1), ""]
    async with asyncio.timeout(DEADLINE):
        output, _ = await process.communicate("\n".join(lines).encode())
    answers = [json.loads(line) for line in output.splitlines()]
    codes = [(answer["id"], answer.get("error", {}).get("code")) for answer in answers]
    assert codes[:3] == [(None, -32700), (None, -32700), (None, -32600)]
    assert {(2, -32600), (3, -32600)} <= set(codes)
    assert process.returncode == 0


class Forwarder:
    """A load balancer: passes each connection to the current target, and can break all of them."""

    def __init__(self) -> None:
        self.target = ""
        self.url = ""
        self._writers: set[asyncio.StreamWriter] = set()

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target.removeprefix("http://").rpartition(":")
        to_reader, to_writer = await asyncio.open_connection(host, int(port))
        self._writers |= {writer, to_writer}
        await asyncio.gather(self._pump(reader, to_writer), self._pump(to_reader, writer), return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()


@asynccontextmanager
async def forwarding() -> AsyncIterator[Forwarder]:
    made = Forwarder()
    server = await asyncio.start_server(made.forward, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield made
    made.cut()
    server.close()
