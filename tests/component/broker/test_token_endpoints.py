"""A hostile token endpoint: what it sends reaches neither headers nor the status, and costs few requests."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.component.broker.conftest import SECRETS, World, secret
from tests.component.broker.servers import Toolbox, managed, serving, serving_app, toolbox
from tests.support.constants import DEADLINE
from tests.support.until import until

SECRET = "client-secret-0123456789-abcdef"
Answer = Callable[[Request], Response]


@asynccontextmanager
async def endpoint(world: World, answer: Answer) -> AsyncIterator[dict[str, Any]]:
    """Serve a token endpoint, and yield the field `oauth` of ToolServers that use it."""

    async def token(request: Request) -> Response:
        return answer(request)

    async with serving_app(Starlette(routes=[Route("/token", token, methods=["POST"])])) as url:
        world.api.put(SECRETS, secret("client", id="me", secret=SECRET))
        pair = {name: {"name": "client", "key": key} for name, key in (("clientId", "id"), ("clientSecret", "secret"))}
        yield {"tokenUrl": url + "/token", **pair}


async def refused(world: World, answer: Answer) -> tuple[str, Toolbox]:
    """Return the status of a ToolServer whose token endpoint answers so, as JSON, and its server."""
    async with serving(toolbox()) as box, endpoint(world, answer) as oauth:
        world.add("box", url=box.url, oauth=oauth)
        await until(lambda: world.status("box").get("reason"))
        assert world.status("box")["reason"] == "TokenRefused"
        return world.status("box")["message"], box


def fails(text: str, *, status: int = 400) -> Answer:
    return lambda request: JSONResponse({"error": text}, status_code=status)


@pytest.mark.parametrize(
    "answer",
    [
        fails("x" * 90 + SECRET),
        lambda request: JSONResponse({"error": request.headers.get("authorization")}, status_code=403),
        lambda request: JSONResponse({"access_token": "a-token", "token_type": "x" * 20 + SECRET}),
        fails("\x1b[31mred\u202e\r\nforged line"),
    ],
    ids=["cut in a secret", "basic credentials", "type", "control characters"],
)
async def test_no_text_of_a_token_endpoint_is_in_the_status(
    world: World, answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    message, _ = await refused(world, answer)
    assert message.isprintable()
    for text in (message, caplog.text):
        assert not [part for part in ("client-s", "Basic", "bWU6", "forged") if part in text]


async def test_the_code_of_an_error_is_in_the_status(world: World) -> None:
    message, _ = await refused(world, fails("invalid_client"))
    assert message == "the token endpoint answers 400: invalid_client"


@pytest.mark.parametrize(
    "token", ["a\r\nX-Evil: 1", "abc\0def", "abc\ud800def", "abc\u20acdef", "two words", "x" * 20_000]
)
async def test_a_token_that_no_header_should_contain_is_refused_and_not_sent(world: World, token: str) -> None:
    body = json.dumps({"access_token": token, "token_type": "Bearer"})
    message, box = await refused(world, lambda request: Response(body, media_type="application/json"))
    assert message == "the access token must be 1 to 16384 printable ASCII characters without spaces"
    assert box.requests == []


async def test_a_short_token_hides_no_words_of_results(world: World) -> None:
    answer = JSONResponse({"access_token": "a", "token_type": "Bearer"})
    async with serving(toolbox()) as box, endpoint(world, lambda request: answer) as oauth:
        world.add("box", url=box.url, oauth=oauth)
        await world.listed("box")
        assert (await world.call("box.echo", value="a banana"))["value"] == '"a banana"'


async def test_a_late_rejection_of_an_old_token_costs_no_further_one(world: World) -> None:
    issued: list[str] = []
    revoked: set[str] = set()
    held, release = asyncio.Event(), asyncio.Event()
    box = toolbox()
    app = box.server.streamable_http_app()

    def issue(request: Request) -> Response:
        issued.append(f"oauth-token-{len(issued)}")
        return JSONResponse({"access_token": issued[-1], "token_type": "Bearer"})

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        given = dict(scope["headers"])[b"authorization"].decode().removeprefix("Bearer ")
        if given not in revoked:
            await app(scope, receive, send)
            return
        if not held.is_set():
            held.set()
            await release.wait()
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with managed(box.server.session_manager), serving_app(guarded) as url, endpoint(world, issue) as oauth:
        world.add("box", url=url + "/mcp", oauth=oauth)
        await world.listed("box")
        revoked.add(issued[0])
        late = asyncio.create_task(world.call("box.add", a=1, b=1))
        await asyncio.wait_for(held.wait(), DEADLINE)
        assert (await world.call("box.add", a=1, b=2))["value"] == 3
        release.set()
        assert (await late)["value"] == 2
    assert len(issued) == 2
