"""The true reason of a ToolServer that is unavailable, in its status and in errors of calls."""

import asyncio
import socket
import sys
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from tests.component.broker.conftest import SECRETS, World, secret
from tests.component.broker.servers import real_bridge, serving_app, stdio_status, stdio_token
from tests.support.until import until

ANSWERS: dict[str, tuple[Response, str, str]] = {
    "missing": (PlainTextResponse("Not Found", 404), "WrongPath", "the server answers 404"),
    "missing-json": (JSONResponse({"detail": "Not Found"}, 404), "WrongPath", "the server answers 404"),
    "old-sse": (PlainTextResponse("Method Not Allowed", 405), "WrongPath", "the server answers 405"),
    "broken": (JSONResponse({"error": "no"}, 503), "ServerError", "the server answers 503"),
    "login": (HTMLResponse("<h1>Log in</h1>"), "NotMCP", "the server answers with text/html instead of JSON"),
    "json": (JSONResponse({"hello": "world"}), "NotMCP", "the server's answer is not JSON-RPC"),
    "moved": (RedirectResponse("https://mcp.invalid/mcp"), "Redirected", "https://mcp.invalid/mcp"),
    "closed": (PlainTextResponse("no", 403), "Unauthorized", "403"),
}


async def answer(request: Request) -> Response:
    return ANSWERS[request.path_params["name"]][0]


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readline()
    writer.close()


async def test_a_url_that_does_not_work_has_its_true_reason_and_the_address(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    resolve = loop.getaddrinfo

    async def no_dns(host: Any, *arguments: Any, **options: Any) -> Any:
        if host == "wiki.agents.svc":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return await resolve(host, *arguments, **options)

    monkeypatch.setattr(loop, "getaddrinfo", no_dns)
    port = unused_port()
    closing = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    routes = [Route("/{name}", answer, methods=["GET", "POST"])]
    async with closing, serving_app(Starlette(routes=routes)) as url:
        expected = {name: (reason, words) for name, (_, reason, words) in ANSWERS.items()}
        for name in ANSWERS:
            world.add(name, url=f"{url}/{name}")
        for name, address, reason, words in [
            ("wiki", "http://wiki.agents.svc/mcp", "NameNotResolved", "the name wiki.agents.svc does not resolve"),
            ("down", f"http://127.0.0.1:{port}/mcp", "ConnectionRefused", f"nothing listens at 127.0.0.1:{port}"),
            ("plain", url.replace("http:", "https:") + "/mcp", "TLSFailed", "no TLS handshake at 127.0.0.1"),
            ("mute", f"http://127.0.0.1:{closing.sockets[0].getsockname()[1]}", "ConnectionLost", "broke"),
        ]:
            world.add(name, url=address)
            expected[name] = reason, words
        for name, (reason, words) in expected.items():
            await until(lambda name=name: world.status(name).get("reason"))
            status = world.status(name)
            assert (status["reason"], words in status["message"]) == (reason, True), (name, status)
            assert "Error" not in status["message"], "the name of an inner class"
            assert [condition["reason"] for condition in status["conditions"]] == [reason, "Found"]
        failed = await world.call("wiki.search", text="x")
    assert (failed["kind"], failed["reason"], failed["cause"]) == (
        "ToolProtocolError",
        "ServerUnavailable",
        "NameNotResolved",
    )
    assert failed["message"] == (
        "wiki can't be used now: the host name of its address does not resolve in the cluster (NameNotResolved); "
        "details: kubectl describe toolserver wiki"
    )


SAYS = "import sys; sys.stderr.write('starting\\nno access with {}\\n\\n'); sys.exit(3)"


@pytest.mark.parametrize(
    ("command", "reason", "message"),
    [
        (
            [sys.executable, "-c", SAYS.format("tok-of-the-server")],
            "CommandExited",
            "the command exited with code 3: no access with [CREDENTIAL REDACTED]",
        ),
        (
            [sys.executable, "-c", SAYS.format("tok-of-the-server" * 200)],
            "CommandExited",
            "the command exited with code 3: (its last line on standard error is too long to be shown)",
        ),
        (
            [sys.executable, "-c", SAYS.format("tok-of-the-ser...")],
            "CommandExited",
            "the command exited with code 3: no access with [CREDENTIAL REDACTED]...",
        ),
        ([sys.executable, "-c", "print('no json')"], "CommandExited", "the command exited with code 0"),
        (
            ["/nowhere/server"],
            "CommandNotStarted",
            "the bridge refused: the server can't be started: [Errno 2] No such file or directory: '/nowhere/server'",
        ),
    ],
    ids=["exits", "long-line", "cut-secret", "no-server", "no-file"],
)
async def test_a_command_that_does_not_serve_has_its_exit_code_and_last_line_without_secrets(
    world: World, command: list[str], reason: str, message: str
) -> None:
    world.api.put(SECRETS, secret("keys", token="tok-of-the-server"))
    token = stdio_token("git")
    environment = [{"name": "TOKEN", "secretKeyRef": {"name": "keys", "key": "token"}}]
    async with real_bridge(command, token=token) as address:
        world.add(
            "git",
            stdio={"image": "i", "command": command, "env": environment},
            status=stdio_status(address),
        )
        await until(lambda: world.status("git").get("reason"))
        assert (world.status("git")["reason"], world.status("git")["message"]) == (reason, message)
        failed = await world.call("git.log")
    assert (failed["reason"], failed["cause"]) == ("ServerUnavailable", reason)
    assert "no access" not in failed["message"]


async def test_a_server_written_for_an_earlier_sdk_says_which_import_failed_and_what_replaces_it(world: World) -> None:
    command = [sys.executable, "-c", "from mcp.server.fastmcp import FastMCP"]
    async with real_bridge(command, token=stdio_token("old")) as address:
        stdio = {"image": "i", "command": command}
        world.add("old", stdio=stdio, status=stdio_status(address))
        await until(lambda: world.status("old").get("reason"))
    message = world.status("old")["message"]
    assert "No module named 'mcp.server.fastmcp'" in message
    assert "from mcp.server.mcpserver import MCPServer" in message
    assert "mcp<2" in message
