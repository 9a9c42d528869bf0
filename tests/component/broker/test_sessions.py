"""Sessions with MCP servers: both protocol generations, credentials, lost connections."""

import asyncio
import json
import socket
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from tests.component.broker.conftest import SECRETS, TS, World, grant, running, secret
from tests.component.broker.servers import (
    Bridge,
    Toolbox,
    managed,
    module,
    real_bridge,
    serving,
    serving_app,
    stdio_status,
    stdio_token,
    toolbox,
)
from tests.support.api_server import FakeApiServer
from tests.support.constants import DEADLINE
from tests.support.until import until

from mcp_exec_broker.core.upstream.errors import ServerUnavailable
from mcp_exec_common.kube.client import resource_path

REDACTIONS = "mcp_exec_broker_credential_redactions_total"
TOKEN = {"name": "Authorization", "prefix": "Bearer ", "secretKeyRef": {"name": "keys", "key": "token"}}

TIME = ("agents", "time")


@pytest.mark.parametrize(
    ("legacy", "json_response", "version"),
    [
        (False, False, "2026-07-28"),
        (False, True, "2026-07-28"),
        (True, False, "2025-11-25"),
        (True, True, "2025-11-25"),
    ],
)
async def test_both_protocol_generations_are_supported(
    world: World, legacy: bool, json_response: bool, version: str
) -> None:
    async with serving(toolbox(), legacy=legacy, json_response=json_response) as box:
        world.add("box", url=box.url)
        await world.listed("box")
        assert world.status("box")["protocolVersion"] == version
        assert world.status("box")["server"] == "toolbox 7"
        assert (await world.call("box.add", a=1, b=2))["value"] == 3
        assert (await world.call("box.fail"))["kind"] == "ToolError"


async def test_a_header_comes_from_a_secret_and_its_rotation_needs_no_restart(world: World) -> None:
    box = toolbox()
    box.needed = {"authorization": "Bearer first-token"}
    async with serving(box):
        world.api.put(SECRETS, secret("keys", token="first-token"))
        world.add("box", url=box.url, headers=[TOKEN, {"name": "X-Team", "value": "blue"}])
        await world.listed("box")
        assert (await world.call("box.add", a=1, b=1))["value"] == 2
        assert box.header("x-team")[-1] == "blue"
        box.needed = {"authorization": "Bearer second-token"}
        world.api.put(SECRETS, secret("keys", token="second-token"))
        assert (await world.call("box.add", a=1, b=1))["value"] == 2
        assert box.calls == ["add", "add"]


async def test_a_secret_that_changed_is_used_though_the_old_one_is_still_taken(
    api: FakeApiServer, tmp_path: Path
) -> None:
    async with running(api, tmp_path, secret_seconds=0) as world, serving(toolbox()) as box:
        world.api.put(SECRETS, secret("keys", token="first-token"))
        world.add("box", url=box.url, headers=[TOKEN])
        await world.listed("box")
        world.api.put(SECRETS, secret("keys", token="second-token"))
        assert (await world.call("box.add", a=1, b=1))["value"] == 2
        assert box.header("authorization")[-1] == "Bearer second-token"


@pytest.mark.parametrize(
    "metadata",
    [{"name": "release-key"}, {"name": "copied", "labels": {"app.kubernetes.io/name": "mcp-exec"}}],
    ids=lambda metadata: metadata["name"],
)
async def test_keys_of_a_release_are_never_sent_to_a_server(world: World, box: Toolbox, metadata: Any) -> None:
    world.api.put(SECRETS, {"metadata": metadata, "data": {"key": "a2V5"}})
    reference = {"name": metadata["name"], "key": "key"}
    world.add("by-header", url=box.url, headers=[{"name": "X-Key", "secretKeyRef": reference}])
    world.add("by-user", url=box.url, userHeaders=[{"name": "X-Key", "secretName": metadata["name"]}])
    await until(lambda: world.status("by-header").get("reason") == "SecretOfRelease")
    await world.listed("by-user")
    answer = await world.call("by-user.add", token=grant(user="key"), a=1, b=1)
    assert (answer["kind"], answer["reason"]) == ("ToolProtocolError", "ServerUnavailable")
    assert box.calls == []
    assert box.header("x-key") == []


@pytest.mark.parametrize(
    "name", ["../../others/secrets/keys", "..%2F..%2Fothers%2Fsecrets%2Fkeys", "..", "x/../../../others/secrets/keys"]
)
async def test_the_name_of_a_secret_leads_to_no_other_namespace(
    api: FakeApiServer, tmp_path: Path, box: Toolbox, name: str
) -> None:
    others = resource_path("secrets", namespace="others")
    async with running(api, tmp_path, namespaces=("agents", "others")) as world:
        world.api.put(others, secret("keys", token="of-the-others"))
        reference = {"name": name, "key": "token"}
        world.add("other", url=box.url, headers=[{"name": "X-Key", "secretKeyRef": reference}])
        world.add("by-user", url=box.url, userHeaders=[{"name": "X-Key", "secretName": name}])
        await until(lambda: world.status("other").get("reason") in ("SecretNotFound", "InvalidSpec"))
        await world.call("by-user.add", token=grant(user="token"), a=1, b=1)
        assert [seen.path for seen in world.api.seen if "others/secrets" in seen.path] == []
    assert box.header("x-key") == []


async def test_a_missing_secret_is_named_in_the_status_alone(world: World, box: Toolbox) -> None:
    world.add("other", url=box.url, headers=[TOKEN])
    await until(lambda: world.status("other").get("reason") == "SecretNotFound")
    found = {each["type"]: each["status"] for each in world.status("other")["conditions"]}
    assert found == {"Available": "False", "CredentialsFound": "False"}
    answer = await world.call("other.add", a=1, b=1)
    assert (answer["kind"], answer["reason"]) == ("ToolProtocolError", "ServerUnavailable")
    assert "keys" not in answer["message"]
    world.api.put(SECRETS, secret("keys", token="now-it-is-there"))
    await world.listed("other")
    assert (await world.call("other.add", a=1, b=1))["value"] == 2


async def test_no_answer_has_the_servers_credentials_in_it(world: World) -> None:
    async with serving(toolbox()) as box:
        world.api.put(SECRETS, secret("keys", token='a-"quoted"-token'))
        world.add("box", url=box.url, headers=[TOKEN], scan={"secretsInResults": "Off"})
        await world.listed("box")
        assert (await world.call("box.add", a=1, b=1))["value"] == 2
        answer = await world.call("box.headers")
        assert answer["value"]["authorization"] == "Bearer [CREDENTIAL REDACTED]"
        assert world.broker.metrics.registry.get_sample_value(REDACTIONS) == 1


async def test_users_have_headers_of_their_own(world: World) -> None:
    box = toolbox()
    async with serving(box):
        mail = "base64-" + b64encode(b"bob@example.com").decode().rstrip("=")
        world.api.put(SECRETS, secret("users", alice="token-of-alice", **{mail: "token-of-bob"}))
        world.add("box", url=box.url, userHeaders=[{"name": "X-User-Token", "secretName": "users"}])
        await world.listed("box")
        for user, token in (("alice", "token-of-alice"), ("bob@example.com", "token-of-bob")):
            assert (await world.call("box.add", token=grant(user=user), a=1, b=1))["value"] == 2
            assert box.header("x-user-token")[-1] == token
        for nobody in ("carol", mail, None):
            answer = await world.call("box.add", token=grant(user=nobody), a=1, b=1)
            assert (answer["kind"], answer["reason"]) == ("ToolDenied", "NoUserCredentials")


@asynccontextmanager
async def authorization_server(seen: list[Any], *, expires_in: float = 3600) -> AsyncIterator[str]:
    async def token(request: Request) -> Response:
        form = await request.form()
        seen.append((request.headers.get("authorization", ""), dict(form)))
        return JSONResponse(
            {"access_token": f"oauth-token-{len(seen)}", "token_type": "Bearer", "expires_in": expires_in}
        )

    async with serving_app(Starlette(routes=[Route("/token", token, methods=["POST"])])) as url:
        yield url + "/token"


async def test_an_oauth_token_may_be_valid_for_ever(world: World) -> None:
    box = toolbox()
    box.needed = {"authorization": "Bearer oauth-token-1"}
    async with serving(box), authorization_server([], expires_in=10**400) as url:
        world.api.put(SECRETS, secret("client", id="me", secret="hidden"))
        names = {"clientId": {"name": "client", "key": "id"}, "clientSecret": {"name": "client", "key": "secret"}}
        world.add("box", url=box.url, oauth={"tokenUrl": url, **names})
        await world.listed("box")
        assert (await world.call("box.add", a=1, b=1))["value"] == 2


async def test_oauth_tokens_are_had_kept_and_renewed(world: World) -> None:
    seen: list[Any] = []
    box = toolbox()
    box.needed = {"authorization": "Bearer oauth-token-1"}
    async with serving(box), authorization_server(seen) as url:
        world.api.put(SECRETS, secret("client", id="me", secret="sh/h secret"))
        world.add(
            "box",
            url=box.url,
            oauth={
                "tokenUrl": url,
                "clientId": {"name": "client", "key": "id"},
                "clientSecret": {"name": "client", "key": "secret"},
                "scopes": ["read", "write"],
            },
        )
        await world.listed("box")
        assert (await world.call("box.add", a=1, b=1))["value"] == 2
        assert seen == [
            (
                "Basic " + b64encode(b"me:sh%2Fh+secret").decode(),
                {"grant_type": "client_credentials", "scope": "read write"},
            )
        ]
        box.needed = {"authorization": "Bearer oauth-token-2"}  # the first one was revoked
        assert (await world.call("box.add", a=1, b=1))["value"] == 2
        assert len(seen) == 2
        assert "oauth-token" not in json.dumps(await world.call("box.headers"))


async def test_a_server_that_does_not_take_the_credentials_says_so_in_its_status(world: World) -> None:
    box = toolbox()
    box.needed = {"authorization": "Bearer something-else"}
    async with serving(box):
        world.add("box", url=box.url)
        await until(lambda: world.status("box").get("reason") == "Unauthorized")


async def test_a_token_that_comes_bit_by_bit_is_read_whole(world: World) -> None:
    async def bits() -> AsyncIterator[bytes]:
        yield b'{"access_token": "oauth-'
        for _ in range(100):  # the broker, in the same loop, gets what was sent
            await asyncio.sleep(0)
        yield b'token", "token_type": "Bearer"}'

    async def token(request: Request) -> Response:
        return StreamingResponse(bits(), media_type="application/json")

    box = toolbox()
    box.needed = {"authorization": "Bearer oauth-token"}
    async with serving(box), serving_app(Starlette(routes=[Route("/token", token, methods=["POST"])])) as url:
        world.api.put(SECRETS, secret("client", id="me", secret="a secret"))
        client = {"clientId": {"name": "client", "key": "id"}, "clientSecret": {"name": "client", "key": "secret"}}
        world.add("box", url=box.url, oauth={"tokenUrl": url + "/token", **client})
        await until(lambda: world.status("box"))
        assert world.status("box").get("message") is None
        assert world.status("box")["available"]


async def test_failures_of_a_server_that_is_down_hold_on_to_no_calls(world: World) -> None:
    world.add("away", url="http://127.0.0.1:9/mcp")
    await until(lambda: world.status("away").get("available") is False)
    server = world.broker.tracker.servers.find("agents", "away")
    assert server is not None
    raised = []
    for _ in range(3):
        with pytest.raises(ServerUnavailable) as info:
            await world.broker.sessions.get_session(server, None)
        raised.append(info.value)
    # each raise of one and the same exception would add its frames, with all that is in them
    assert len({id(error) for error in raised}) == 3


async def test_a_toolserver_that_goes_while_it_is_connected_leaves_no_connection(world: World) -> None:
    box, gate, asked = toolbox(), asyncio.Event(), 0
    app = box.server.streamable_http_app()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        nonlocal asked
        asked += 1
        await gate.wait()
        await app(scope, receive, send)

    async with managed(box.server.session_manager), serving_app(slow) as url:
        world.add("slow", url=url + "/mcp")
        await until(lambda: asked)
        call = asyncio.create_task(world.lines("slow.add", a=1, b=1))
        await until(lambda: world.broker.pipeline.active_calls)
        world.api.remove(TS, "slow")
        await until(lambda: not len(world.broker.sessions))
        gate.set()
        assert (await call)[-1]["reason"] == "ServerUnavailable"
        assert len(world.broker.sessions) == 0


async def test_redirects_to_other_hosts_are_not_followed(world: World) -> None:
    caught: list[Any] = []

    async def elsewhere(request: Request) -> Response:
        caught.append(dict(request.headers))
        return Response(status_code=404)

    async with serving_app(Starlette(routes=[Route("/{p:path}", elsewhere, methods=["POST", "GET"])])) as other:

        async def redirect(request: Request) -> Response:
            return RedirectResponse(other + "/mcp", status_code=307)

        async with serving_app(Starlette(routes=[Route("/mcp", redirect, methods=["POST", "GET"])])) as url:
            world.api.put(SECRETS, secret("keys", token="never-elsewhere"))
            world.add("box", url=url + "/mcp", headers=[TOKEN])
            await until(lambda: world.status("box").get("reason"))
            assert caught == []


async def test_a_server_that_restarts_is_found_again(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    async with serving(toolbox(), legacy=True, port=port) as box:
        world.add("box", url=box.url)
        await world.listed("box")
        assert (await world.call("box.add", a=1, b=1))["value"] == 2
        hanging = asyncio.create_task(world.lines("box.hang"))
        await asyncio.wait_for(box.entered.wait(), DEADLINE)
    lost = (await hanging)[-1]
    assert (lost["kind"], lost["reason"]) == ("ToolProtocolError", "ConnectionLost")
    assert (await world.call("box.add", a=1, b=1))["reason"] == "ServerUnavailable"
    async with serving(toolbox(), legacy=True, port=port):
        # the old session is unknown there: a new one is made, and the call is made in it
        assert await world.call("box.add", a=1, b=1) == {"type": "result", "tool": "box.add", "value": 2}


@pytest.fixture
async def clock(world: World) -> AsyncIterator[Bridge]:
    """Run the real mcp-server-time as ToolServer `time`."""
    token = stdio_token("time")
    async with Bridge(module("mcp_server_time", "--local-timezone=UTC"), token).running() as bridge:
        world.add(
            "time",
            stdio={"image": "i", "command": ["mcp-server-time"]},
            status=stdio_status(bridge.address),
        )
        await world.listed("time")
        yield bridge


async def test_a_real_stdio_server_is_called_over_the_bridge(world: World, clock: Bridge) -> None:
    answer = await world.call("time.get_current_time", timezone="Europe/Berlin")
    assert answer["value"]["timezone"] == "Europe/Berlin"
    many = await asyncio.gather(*(world.call("time.get_current_time", timezone="UTC") for _ in range(20)))
    assert all(each["type"] == "result" for each in many)
    assert len(clock.processes) == 1


async def test_a_real_server_behind_the_real_bridge_is_called(world: World, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    git = ["git", "-C", str(repository), "-c", "user.name=n", "-c", "user.email=e@example.com"]
    for command in (
        ["git", "init", "--quiet", str(repository)],
        [*git, "commit", "--quiet", "--allow-empty", "--message", "the first one"],
    ):
        made = await asyncio.create_subprocess_exec(*command)
        assert await made.wait() == 0
    token = stdio_token("git")
    async with real_bridge(module("mcp_server_git"), token=token) as address:
        world.add(
            "git",
            stdio={"image": "i", "command": ["mcp-server-git"]},
            status=stdio_status(address),
        )
        await world.listed("git")
        assert "the first one" in str((await world.call("git.git_log", repo_path=str(repository)))["value"])
        assert (await world.call("git.git_log", repo_path=str(tmp_path)))["kind"] == "ToolError"


async def test_a_stdio_server_that_is_killed_is_started_again(world: World, clock: Bridge) -> None:
    clock.processes[0].kill()
    await until(lambda: len(clock.processes) == 2)
    await until(lambda: world.broker.catalogs.get_entry(TIME).available)
    answer = await world.call("time.get_current_time", timezone="UTC")
    assert answer["value"]["timezone"] == "UTC"


async def test_a_server_that_comes_up_slower_than_calls_wait_is_reached_all_the_same(
    world: World, clock: Bridge
) -> None:
    clock.gate.clear()
    world.broker.sessions.remove(TIME)
    for _ in range(2):
        answer = await world.call("time.get_current_time", within=0.2, timezone="UTC")
        assert "it still waited for a connection to time" in answer["message"]
    clock.gate.set()
    answer = await world.call("time.get_current_time", timezone="UTC")
    assert answer["value"]["timezone"] == "UTC"
    assert clock.attempts == 2


async def test_what_failed_before_a_server_came_up_delays_nothing_when_it_ends(world: World, clock: Bridge) -> None:
    good, clock.token = clock.token, "another"
    world.broker.sessions.remove(TIME)
    for _ in range(8):
        assert (await world.call("time.get_current_time", timezone="UTC"))["reason"] == "ServerUnavailable"
        world.broker.sessions.retry(TIME)
    clock.token = good
    assert (await world.call("time.get_current_time", timezone="UTC"))["type"] == "result"
    clock.processes[-1].kill()
    async with asyncio.timeout(DEADLINE):
        while (await world.call("time.get_current_time", timezone="UTC"))["type"] != "result":
            pass


async def test_what_a_killed_stdio_server_was_doing_is_lost(world: World) -> None:
    token = stdio_token("slow")
    async with Bridge(module("tests.component.broker.slow_server"), token).running() as bridge:
        world.add(
            "slow",
            stdio={"image": "i", "command": ["slow"]},
            status=stdio_status(bridge.address),
        )
        await world.listed("slow")
        calls = [asyncio.create_task(world.lines("slow.wait")) for _ in range(3)]
        await until(lambda: world.broker.pipeline.active_calls == 3)
        await world.call("slow.quick")  # answered after the others were taken in
        bridge.processes[0].kill()
        for call in calls:
            answer = (await call)[-1]
            assert (answer["kind"], answer["reason"]) == ("ToolProtocolError", "ConnectionLost")
        await until(lambda: len(bridge.processes) == 2)


@asynccontextmanager
async def run_leaking_server(world: World, **references: dict[str, str]) -> AsyncIterator[Bridge]:
    """Run a server that reveals its environment as ToolServer `open`, with variables from Secrets."""
    token = stdio_token("open")
    async with Bridge(module("tests.component.broker.leaking_server"), token).running() as bridge:
        world.add(
            "open",
            stdio={
                "image": "i",
                "command": ["leaking"],
                "env": [{"name": name, "secretKeyRef": each} for name, each in references.items()],
            },
            scan={"secretsInResults": "Off"},
            status=stdio_status(bridge.address),
        )
        await world.listed("open")
        yield bridge


PASSWORD = {"name": "database", "key": "password"}


async def test_no_answer_has_what_a_stdio_server_has_from_a_secret(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DB_PASSWORD", "correct horse\nbattery")
    monkeypatch.setenv("DB_USER", "reader")
    world.api.put(SECRETS, secret("database", password="correct horse\nbattery\n"))
    async with run_leaking_server(world, DB_PASSWORD=PASSWORD):
        found = (await world.call("open.environment"))["value"]
        assert (found["DB_PASSWORD"], found["DB_USER"]) == ("[CREDENTIAL REDACTED]", "reader")
        assert "does not take [CREDENTIAL REDACTED]" in (await world.call("open.complain"))["message"]
        assert world.broker.metrics.registry.get_sample_value(REDACTIONS) == 2
        _, catalog = await world.ask("GET", "/v1/namespaces/agents/catalog")
        assert "with [CREDENTIAL REDACTED] in it" in str(catalog)


async def test_a_stdio_server_that_still_has_an_earlier_secret_does_not_reveal_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DB_PASSWORD", "the-first-password")
    world.api.put(SECRETS, secret("database", password="the-first-password"))
    async with run_leaking_server(world, DB_PASSWORD=PASSWORD) as bridge:
        world.api.put(SECRETS, secret("database", password="the-second-password"))
        for password in ("the-first-password", "the-second-password"):  # the pod of before, then the one that follows
            monkeypatch.setenv("DB_PASSWORD", password)
            before = len(bridge.processes)
            bridge.processes[-1].kill()
            await until(lambda: len(bridge.processes) > before)  # noqa: B023
            await until(lambda: world.broker.catalogs.get_entry(("agents", "open")).available)
            assert (await world.call("open.environment"))["value"]["DB_PASSWORD"] == "[CREDENTIAL REDACTED]"


async def test_a_stdio_server_is_called_though_a_secret_of_its_environment_is_missing(world: World) -> None:
    world.api.put(SECRETS, secret("database", password="correct horse"))
    other, nowhere = {"name": "database", "key": "user"}, {"name": "nowhere", "key": "password"}
    async with run_leaking_server(world, DB_USER=other, DB_HOST=nowhere):
        assert (await world.call("open.environment"))["type"] == "result"


async def test_null_next_to_text_is_no_value_in_the_older_protocol(world: World) -> None:
    token = stdio_token("nulls")
    async with Bridge(module("tests.component.broker.null_server"), token).running() as bridge:
        world.add(
            "nulls",
            stdio={"image": "i", "command": ["nulls"]},
            status=stdio_status(bridge.address),
        )
        await world.listed("nulls")
        assert (await world.call("nulls.say"))["value"] == "said"


async def test_a_stdio_server_without_a_ready_pod_is_unavailable(world: World) -> None:
    world.add(
        "time",
        stdio={"image": "i", "command": ["c"]},
        status={"workload": {"ready": False, "reason": "ImagePullFailed", "message": "no such image"}},
    )
    await until(lambda: world.status("time").get("reason") == "ImagePullFailed")
    answer = await world.call("time.get_current_time")
    assert (answer["reason"], answer["cause"]) == ("ServerUnavailable", "ImagePullFailed")
    assert world.status("time")["workload"]["reason"] == "ImagePullFailed"
