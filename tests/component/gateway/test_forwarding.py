"""Requests on files that are passed on to the broker: hostile callers, hostile answers, clients that leave."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
from aiohttp import web
from tests.component.gateway.conftest import KEY, Gateway, serving
from tests.component.gateway.test_refusals import assert_problem
from tests.support.api_server import FakeApiServer
from tests.support.attacks import Play, flood, say
from tests.support.broker import FakeBroker
from tests.support.until import until
from yarl import URL

from mcp_exec_api.files import Owner
from mcp_exec_api.wire.problems import PROBLEM_MEDIA_TYPE, ProblemDetails
from mcp_exec_gateway.features.files.service import Files

ME = Owner(namespace="agents", caller="team-a")
OTHER = Owner(namespace="agents", caller="team-b").digest
PATH = "/v1/workspaces/sales"
JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.fixture
async def gateway(api: FakeApiServer, broker: FakeBroker) -> AsyncIterator[Gateway]:
    async with serving(api, broker_service="mcp-exec-broker", max_upload_bytes=2**20) as made:
        yield made


async def ask_exactly(gateway: Gateway, method: str, target: str) -> int:
    """Send a request whose path and query are not normalized; return the status."""
    headers = {"Authorization": f"Bearer {KEY}"}
    async with gateway.session.request(method, URL(gateway.url + target, encoded=True), headers=headers) as answer:
        await answer.read()
        return answer.status


def list_forwarded(broker: FakeBroker) -> list[tuple[str, dict[str, str]]]:
    return [(path, query) for path, query in broker.asked if "/workspace" in path or "/artifacts" in path]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "query",
    [f"owner={OTHER}", f"caller={OTHER}", "namespace=other", "maxWorkspaces=100", f"user=ann&owner={OTHER}"],
)
async def test_a_caller_names_no_owner(gateway: Gateway, broker: FakeBroker, method: str, query: str) -> None:
    for path in ("/files/a", "/archive", ""):
        assert await ask_exactly(gateway, method, f"{PATH}{path}?{query}") in (403, 405, 422)
    assert list_forwarded(broker) == []


@pytest.mark.parametrize(
    "path",
    [
        f"a%3Fowner={OTHER}",
        f"a%3Fowner%3D{OTHER}%26namespace%3Dother",
        "%252e%252e%252f%252e%252e%252fother",
        "a%23b",
        "a;owner=b",
        "x%252Ftar",
        "%E2%80%A5/tar",
    ],
)
async def test_a_path_is_always_one_of_the_callers_own_file(gateway: Gateway, broker: FakeBroker, path: str) -> None:
    for method in ("GET", "PUT", "DELETE"):
        assert await ask_exactly(gateway, method, f"{PATH}/files/{path}") in (200, 404, 422)
    for asked, query in list_forwarded(broker):
        assert asked.startswith("/v1/workspaces/sales/files/")
        assert (query["owner"], query["caller"], query["namespace"]) == (ME.digest, ME.caller_digest, "agents")


OUTSIDE = (
    "%2e%2e",
    "%2E.",
    ".%2e",
    "%2e",
    "%2e%2e/%2e%2e/other",
    "%2e%2e%2f%2e%2e%2fother%2ffiles%2fa",
    "sub/%2e%2e/%2e%2e/%2E%2E/other/files/a",
    "..%5c..%5cother",
    "%2e%2e%5Cother",
    "a/%2e/b",
    "a//b",
    "a%2F%2Fb",
    "%2Fabs",
    "a/",
)


@pytest.mark.parametrize("path", OUTSIDE)
async def test_a_path_with_encoded_dots_never_leaves_the_workspace(
    gateway: Gateway, broker: FakeBroker, path: str
) -> None:
    for method in ("GET", "PUT", "DELETE"):
        assert await ask_exactly(gateway, method, f"{PATH}/files/{path}") == 422
    assert list_forwarded(broker) == []


@pytest.mark.parametrize("name", ["..", ".", "a%2F..%2Fb", "%2e%2e", "a%3Fb", "a%00"])
async def test_a_name_is_no_path(gateway: Gateway, broker: FakeBroker, name: str) -> None:
    for suffix in ("", "/files", "/files/a", "/archive", "/versions"):
        assert await ask_exactly(gateway, "GET", f"/v1/workspaces/{name}{suffix}") in (404, 405, 422)
    assert list_forwarded(broker) == []


def answer(status: int, body: bytes, **headers: str) -> Play:
    """Return a broker's answer of these bytes. An underscore in a header's name is a hyphen."""
    lines = [f"HTTP/1.1 {status} Any", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return say("\r\n".join([*lines, "", ""]).encode() + body)


def problem(
    kind: str, status: int, *, sent: int | None = None, media_type: str = PROBLEM_MEDIA_TYPE, **changes: Any
) -> Play:
    """Return an answer of the broker with problem details, and with another status if `sent` is one."""
    content = ProblemDetails.build(kind, status, "secret words").model_dump(exclude_none=True) | changes
    return answer(sent or status, json.dumps(content).encode(), Content_Type=media_type)


def attack(broker: FakeBroker, play: Play) -> None:
    """Answer all requests on workspaces so."""

    def choose(request: web.Request) -> Play | None:
        return play if request.path.startswith("/v1/workspaces") else None

    broker.attack = choose


HOSTILE: Mapping[str, Callable[[], Play]] = {
    "without a problem": lambda: answer(404, b"secret words"),
    "of another media type": lambda: answer(
        404, b'{"type":"urn:mcp-exec:problem:not-found"}', Content_Type="text/html"
    ),
    "of another status": lambda: problem("not-found", 404, sent=413),
    "of an unknown kind": lambda: problem("not-found", 404, type="urn:mcp-exec:problem:secret words"),
    "of a kind with another status": lambda: problem("not-found", 429),
    "that the caller has no key": lambda: problem("unauthenticated", 401),
    "that the caller may not": lambda: problem("forbidden", 403),
    "of its own failure": lambda: problem("internal", 500),
    "with a wrong field": lambda: problem("not-found", 404, errors="secret words"),
    "beyond the limit": lambda: problem("not-found", 404, detail="secret words" * 10_000),
    "without an end": lambda: flood(b"HTTP/1.1 404 No\r\n\r\n", b"secret words"),
    "that redirects": lambda: answer(307, b"", Location="http://127.0.0.1:1/secret words"),
    "that is compressed": lambda: answer(404, b"secret words", Content_Encoding="gzip"),
    "that breaks off": lambda: say(b"HTTP/1.1 404 No\r\nContent-Length: 50\r\n\r\nsecret words"),
    "of an informational status": lambda: answer(199, b""),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_refusal_that_is_no_problem_of_the_caller_is_a_503(
    gateway: Gateway, broker: FakeBroker, name: str
) -> None:
    attack(broker, HOSTILE[name]())
    for method, path in (("GET", ""), ("GET", "/files/a"), ("PUT", "/files/a")):
        found = await gateway.ask(method, PATH + path)
        assert assert_problem(found, 503).type == "urn:mcp-exec:problem:unavailable"
        assert "secret" not in found.text
        assert "Location" not in found.headers
    assert gateway.dependencies.memory.used == gateway.dependencies.get(Files).transfer_slots.open == 0


async def test_a_problem_of_the_caller_is_passed_on_without_more_members(gateway: Gateway, broker: FakeBroker) -> None:
    errors = [{"field": "path", "message": "no"}]
    attack(broker, problem("invalid", 422, errors=errors, reason="Invalid", title="another", execution="e"))
    found = await gateway.ask("GET", PATH)
    assert found.json == {
        "type": "urn:mcp-exec:problem:invalid",
        "title": "The request is invalid",
        "status": 422,
        "detail": "secret words",
        "errors": errors,
    }


async def test_only_allowed_headers_with_allowed_values_are_passed_on(gateway: Gateway, broker: FakeBroker) -> None:
    hostile = {"Set_Cookie": "a=b", "Location": "/x", "X_Other": "1"}
    hostile |= {"Content_Disposition": "inline", "Access_Control_Allow_Origin": "*", "Cache_Control": "public"}
    for tag, passed in (('"good"', '"good"'), ("<script>", None), ('"a", "b"', None), ('"' + "x" * 300 + '"', None)):
        for path, sent, media_type in (
            ("", "application/json; charset=x", "application/json"),
            ("/files/a", "text/html", "application/octet-stream"),
        ):
            attack(broker, answer(200, b"{}", **hostile, Content_Type=sent, ETag=tag))
            found = await gateway.ask("GET", PATH + path)
            assert (found.status, found.text, found.headers.get("ETag")) == (200, "{}", passed)
            assert found.headers["Content-Type"] == media_type
            assert not found.headers.keys() & {"Set-Cookie", "Location", "X-Other", "Access-Control-Allow-Origin"}
            assert found.headers.get("Content-Disposition", "attachment").startswith("attachment")
            assert found.headers.get("Cache-Control") != "public"
    content = ProblemDetails.build("outdated", 412, "x").model_dump_json(exclude_none=True).encode()
    wrong = {"X_Workspace_Version": "1; x", "Retry_After": "never"}
    attack(broker, answer(412, content, Content_Type=PROBLEM_MEDIA_TYPE, **wrong))
    found = await gateway.ask("GET", PATH)
    assert (found.status, found.headers.keys() & {"X-Workspace-Version", "Retry-After"}) == (412, set())


@pytest.mark.parametrize(
    "play",
    [
        answer(200, b"<html>", Content_Type="text/html"),
        answer(200, b"{}", Content_Type="application/json", Content_Encoding="gzip"),
        say(JSON_HEAD + b"Content-Length: 50\r\n\r\n{"),
        flood(JSON_HEAD + b"\r\n", b"[[]," * 1000),
    ],
    ids=["of another type", "compressed", "broken off", "without an end"],
)
async def test_an_answer_that_is_no_json_of_its_size_is_a_503(gateway: Gateway, broker: FakeBroker, play: Play) -> None:
    attack(broker, play)
    assert_problem(await gateway.ask("GET", f"{PATH}/files"), 503)
    assert gateway.dependencies.memory.used == 0


async def test_a_content_is_abandoned_when_its_client_leaves(gateway: Gateway, broker: FakeBroker) -> None:
    attack(broker, flood(b"HTTP/1.1 200 OK\r\n\r\n", b"endless "))
    async with gateway.request("GET", f"{PATH}/files/a") as found:
        assert (await found.content.readexactly(8)) == b"endless "
        assert gateway.dependencies.get(Files).transfer_slots.open == 1
        found.close()
    await until(lambda: gateway.dependencies.get(Files).transfer_slots.open == 0)
    assert gateway.dependencies.memory.used == 0
