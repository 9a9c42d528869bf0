"""The broker as a process with the memory of its container, and servers that answer densely, ten calls at once."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from tests.component.broker.conftest import TS, Object, grant
from tests.component.broker.hostile import HostileServer, Reply, Writer, http
from tests.component.broker.servers import module, real_bridge, serving, stdio_status, stdio_token, toolbox
from tests.component.broker.test_process import MODULE, broker
from tests.support.api_server import FakeApiServer
from tests.support.large import MEMORY_MIB, WITHIN, peak_mib
from tests.support.processes import SECONDS, Process, started
from tests.support.until import until

PROGRAM = f"""{WITHIN}
import runpy
runpy.run_module("{MODULE[1]}", run_name="__main__")
"""
AT_ONCE = 10
LISTS = b"[" + b"[]," * 2_700_000 + b"0]"
"""7.7 MiB, which become 370 MiB as values."""


def answer(body: bytes, *, events: bool = False) -> Reply:
    """Return a reply whose result is the given JSON."""

    async def reply(request: Object, writer: Writer) -> None:
        message = b'{"jsonrpc": "2.0", "id": %d, "result": %b}' % (request["id"], body)
        if events:
            writer.write(http(b"event: message\ndata: " + message + b"\n\n", kind="text/event-stream"))
        else:
            writer.write(http(message))
        await writer.drain()

    return reply


REPLIES = {
    "text": answer(b'{"content": [{"type": "text", "text": "%b"}]}' % LISTS),
    "values": answer(b'{"content": [], "structuredContent": {"a": %b, "b": %b}}' % (LISTS, LISTS)),
    "events": answer(b'{"content": [], "structuredContent": {"a": %b}}' % LISTS, events=True),
    "blocks": answer(b'{"content": [%b{"type": "text", "text": ""}]}' % (b'{"type":"text"},' * 500_000)),
}


class Broker:
    """A broker with the memory of its container."""

    def __init__(self, api: FakeApiServer, process: Process, session: aiohttp.ClientSession, url: str) -> None:
        self.api, self.process, self._session, self._url = api, process, session, url

    async def add(self, name: str, *, status: Object | None = None, **spec: object) -> Object:
        """Add a ToolServer and return its status once its tools were listed, or not."""
        item: Object = {"metadata": {"name": name, "generation": 1}, "spec": spec, "status": status or {}}
        self.api.put(TS, item)

        def find_status() -> Object:
            found: Object = self.api.collections[TS][name].get("status") or {}
            return found if "available" in found else {}

        return await until(find_status)

    async def call(self, tool: str, execution: str, **arguments: object) -> Object:
        headers = {"Authorization": f"Bearer {grant(execution=execution, tool_calls=10_000)}"}
        body = {"id": "1", "tool": tool, "arguments": arguments}
        async with self._session.post(self._url, json=body, headers=headers) as response:
            assert response.status == 200, await response.text()
            found: Object = json.loads((await response.read()).splitlines()[-1])
            return found

    async def call_others(self) -> None:
        """Call another server as long as the task runs."""
        while True:
            assert (await self.call("box.add", "other", a=1, b=2))["value"] == 3


@asynccontextmanager
async def small_broker(api: FakeApiServer, folder: Path) -> AsyncIterator[Broker]:
    env = broker(folder, api)
    url = f"http://127.0.0.1:{env['MCP_EXEC_PORT']}/v1/calls"
    async with (
        started("-c", PROGRAM, env=env) as process,
        serving(toolbox()) as box,
        aiohttp.ClientSession() as session,
    ):
        await process.says("ready")
        running = Broker(api, process, session, url)
        await running.add("box", url=box.url)
        yield running


async def check(running: Broker, tool: str) -> list[Object]:
    """Call a tool ten times at once while others call theirs, and return the answers."""
    async with asyncio.timeout(2 * SECONDS):
        others = asyncio.create_task(running.call_others())
        answers = await asyncio.gather(*(running.call(tool, f"uid-{number}") for number in range(AT_ONCE)))
        assert not others.done(), others.exception()
        others.cancel()
        assert (await running.call("box.add", "other", a=1, b=2))["value"] == 3
    assert peak_mib(running.process) < MEMORY_MIB
    return list(answers)


@pytest.mark.parametrize("kind", REPLIES)
async def test_dense_results_over_http_fail_their_calls_alone(api: FakeApiServer, tmp_path: Path, kind: str) -> None:
    async with HostileServer(replies={"act": REPLIES[kind]}).running() as evil, small_broker(api, tmp_path) as running:
        assert (await running.add("evil", url=evil.url))["available"]
        answers = await check(running, "evil.act")
    if kind == "text":  # which may stay a text
        assert {len(each["value"]) for each in answers if each["type"] == "result"} == {len(LISTS)}
    refused = [each for each in answers if each["type"] == "error"]
    assert refused or kind == "text"
    assert {each["reason"] for each in refused} <= {"ResultTooLarge"}
    assert all("bytes of memory" in each["message"] or "other calls" in each["message"] for each in refused)


async def test_dense_lines_of_a_stdio_server_fail_their_calls_alone(api: FakeApiServer, tmp_path: Path) -> None:
    token = stdio_token("evil")
    async with (
        real_bridge(module("tests.component.broker.hostile_stdio_server"), token=token) as address,
        small_broker(api, tmp_path) as running,
    ):
        workload = stdio_status(address)
        spec = {"stdio": {"image": "i", "command": ["evil"]}}
        assert (await running.add("evil", status=workload, **spec))["available"]
        answers = await check(running, "evil.dense")
        assert {each["reason"] for each in answers} == {"ResultTooLarge"}
        assert (await running.call("evil.fine", "uid-1"))["value"] == "fine"


@pytest.mark.parametrize("method", ["initialize", "tools/list"])
async def test_a_dense_answer_outside_of_calls_makes_its_server_unavailable(
    api: FakeApiServer, tmp_path: Path, method: str
) -> None:
    body = b'{"tools": %b, "capabilities": %b}' % (LISTS, LISTS)
    async with HostileServer(replies={method: answer(body)}).running() as evil, small_broker(api, tmp_path) as running:
        status = await running.add("evil", url=evil.url)
        assert (status["available"], "bytes of memory" in status["message"]) == (False, True), status
        assert (await running.call("box.add", "other", a=1, b=2))["value"] == 3
        assert peak_mib(running.process) < MEMORY_MIB
