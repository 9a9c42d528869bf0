"""Servers that `mcp-exec servers import` makes, as processes, with the SDK's client."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import CallToolResult, TextContent
from tests.support.pace import paced

from mcp_exec_client.__main__ import main

EXAMPLE = Path(__file__).parents[3] / "examples" / "own_tools"
DEADLINE = paced(60)
TOKEN = "the-applications-token"


def command_of(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> list[str]:
    """The command of the imported server, as the kubelet passes it to the process."""
    main(["servers", "import", "shop", *map(str, arguments)])
    command: list[str] = yaml.safe_load(capsys.readouterr().out)["spec"]["stdio"]["command"]
    return [sys.executable, *(text.replace("$$", "$") for text in command[1:])]


def environment(**more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", ""), **more}


@asynccontextmanager
async def client_of(command: list[str], log: Path, **variables: str) -> AsyncIterator[Client]:
    """A client of a server that is started here, and that writes its standard error to a file."""
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=environment(**variables))
    with log.open("w") as file:
        async with asyncio.timeout(DEADLINE), Client(stdio_client(parameters, errlog=file)) as client:
            yield client


async def call(client: Client, tool: str, /, **arguments: Any) -> Any:
    """Return a tool's value. Raises AssertionError with the text of its error."""
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, CallToolResult)
    text = "".join(block.text for block in result.content if isinstance(block, TextContent))
    if result.is_error:
        raise AssertionError(text)
    content = result.structured_content
    if content is None:
        return text
    return content["result"] if set(content) == {"result"} else content


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def application() -> Iterator[str]:
    """The URL of the example's application."""
    with socket.create_server(("127.0.0.1", 0)) as listener:  # calls wait here until the process accepts them
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "uvicorn", "--app-dir", str(EXAMPLE)),
                *("--fd", str(listener.fileno()), "--log-level", "warning", "application:app"),
            ],
            pass_fds=[listener.fileno()],
            env=environment(APPLICATION_TOKEN=TOKEN),
        )
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/tools"
        finally:
            process.kill()
            process.wait(DEADLINE)


async def test_functions_of_a_file_are_tools_with_types_docstrings_and_errors(
    capsys: pytest.CaptureFixture[str], log: Path
) -> None:
    async with client_of(command_of(capsys, "--from-python", EXAMPLE / "shop.py"), log) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {"list_orders", "get_order", "remind"}
        assert tools["get_order"].description == "Return one order by its id, such as o-17."
        assert tools["get_order"].input_schema["required"] == ["order_id"]
        assert set((tools["get_order"].output_schema or {})["properties"]) == {"id", "customer", "total", "paid"}
        assert len(await call(client, "list_orders")) == 200
        assert (await call(client, "list_orders", customer="c-3"))[0]["id"] == "o-3"
        assert await call(client, "get_order", order_id="o-2") == {
            "id": "o-2",
            "customer": "c-2",
            "total": 25.0,
            "paid": True,
        }
        assert await call(client, "remind", order_id="o-3", text="Now.") == "sent to c-3: Now."
        with pytest.raises(AssertionError, match="ValueError: there is no order o-999"):
            await call(client, "get_order", order_id="o-999")


NOISY = """
import os, subprocess, sys
print("while it is imported")
def printed() -> int:
    print("by a function")
    sys.stdout.write("without an end of line")
    os.system("echo by a child")
    subprocess.run(["echo", "by another"], check=True)
    return 1
"""


async def test_what_functions_print_goes_to_the_log_and_never_between_messages(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, log: Path
) -> None:
    module = tmp_path / "noisy.py"
    module.write_text(NOISY)
    command = command_of(capsys, "--from-python", module)
    async with client_of(command, log) as client:
        assert [await call(client, "printed") for _ in range(3)] == [1, 1, 1]
    text = await asyncio.to_thread(log.read_text)
    for line in ("while it is imported", "by a function", "without an end of line", "by a child", "by another"):
        assert line in text
    # a session that ends at once: all of standard output is the answers
    requests = (
        '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
        '"clientInfo":{"name":"it","version":"1"}}}\n{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
        '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"printed","arguments":{}}}\n'
    )
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE):
        process.stdin.write(requests.encode())
        answers = [await process.stdout.readline() for _ in range(2)]
        process.stdin.close()
        rest = await process.stdout.read()
        await process.wait()
    assert all(answer.startswith(b"{") for answer in answers)
    assert (rest, process.returncode) == (b"", 0)


DECORATED = """
import functools
from anthropic import beta_tool
@beta_tool
def price(article: str) -> str:
    '''Return the price of an article.'''
    return f"{article} costs $(HOME) $$ 5"
@functools.cache
def answer() -> int:
    '''Return the answer.'''
    return 42
"""


async def test_decorated_functions_are_tools_and_the_source_is_passed_as_it_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, log: Path
) -> None:
    module = tmp_path / "decorated.py"
    module.write_text(DECORATED)
    async with client_of(command_of(capsys, "--from-python", module), log) as client:
        tools = {tool.name: tool.description for tool in (await client.list_tools()).tools}
        assert tools == {"price": "Return the price of an article.", "answer": "Return the answer."}
        assert await call(client, "price", article="tea") == "tea costs $(HOME) $$ 5"
        assert await call(client, "answer") == 42


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import no_such_package\ndef f(): ...", "no_such_package"),
        ("def f(): ...\nf = 5", "f of bad.py is not a function"),
    ],
)
def test_a_file_that_does_not_load_ends_the_server_with_the_reason_on_its_last_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, source: str, said: str
) -> None:
    module = tmp_path / "bad.py"
    module.write_text(source)
    command = command_of(capsys, "--from-python", module)
    ended = subprocess.run(
        command, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE
    )
    assert ended.returncode == 1
    assert said in ended.stderr.splitlines()[-1]


async def test_calls_of_definitions_reach_the_application_with_its_token(
    capsys: pytest.CaptureFixture[str], log: Path, application: str
) -> None:
    command = command_of(capsys, "--from-file", EXAMPLE / "tools.json", "--url", application)
    async with client_of(command, log, APPLICATION_TOKEN=TOKEN) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {"list_orders", "get_order", "remind"}
        assert tools["get_order"].input_schema["required"] == ["order_id"]
        assert (await call(client, "get_order", order_id="o-2"))["total"] == 25
        assert '"o-3"' in await call(client, "list_orders", customer="c-3")
        with pytest.raises(AssertionError, match=r"status 422: .*there is no order o-999"):
            await call(client, "get_order", order_id="o-999")
        with pytest.raises(AssertionError, match="there is no tool refund"):
            await call(client, "refund")
    async with client_of(command, log) as client:
        with pytest.raises(AssertionError, match=r"status 401: .*wrong token"):
            await call(client, "list_orders")


async def test_an_application_that_does_not_answer_is_an_error_of_the_tool(
    capsys: pytest.CaptureFixture[str], log: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/tools"
    command = command_of(capsys, "--from-file", EXAMPLE / "tools.json", "--url", url)
    async with client_of(command, log) as client:
        with pytest.raises(AssertionError, match="the application did not answer: ConnectError"):
            await call(client, "list_orders")


async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a request for `large` with more than is allowed, and others with JSON that is nested too deeply."""
    request = await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(len("{}"))
    body = b"x" * 5_000_000 if b"/large " in request else b"[" * 200_000
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with contextlib.suppress(ConnectionError):
        writer.write(head.encode() + body)
        await writer.drain()
    writer.close()


async def test_answers_are_bounded_in_bytes_and_depth(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, log: Path
) -> None:
    definitions = tmp_path / "tools.json"
    await asyncio.to_thread(definitions.write_text, '[{"name": "large"}, {"name": "deep"}]')
    server = await asyncio.start_server(answer_once, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/tools"
    command = command_of(capsys, "--from-file", definitions, "--url", url)
    async with server, client_of(command, log) as client:
        with pytest.raises(AssertionError, match="its answer is larger than 4194304 bytes"):
            await call(client, "large")
        with pytest.raises(AssertionError, match="the application did not answer: RecursionError"):
            await call(client, "deep")
