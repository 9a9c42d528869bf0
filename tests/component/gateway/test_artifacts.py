"""Artifacts over REST: bytes, links that expire, and content that must not act in the gateway's origin."""

import hashlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.component.gateway.conftest import CEX, KEY, OTHER_KEY, Gateway, serving
from tests.component.gateway.test_refusals import assert_problem
from tests.support.api_server import FakeApiServer
from tests.support.broker import FakeBroker

from mcp_exec_api.files import Owner
from mcp_exec_api.wire.executions import ArtifactList, Execution
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_gateway.features.files.artifacts import ArtifactAddress, LinkSigner
from mcp_exec_gateway.features.files.service import Files

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)


@pytest.fixture
async def gateway(api: FakeApiServer, broker: FakeBroker) -> AsyncIterator[Gateway]:
    async with serving(api, broker_service="mcp-exec-broker", anonymous_requests_per_minute=30) as made:
        yield made


async def produce(gateway: Gateway, broker: FakeBroker, *artifacts: tuple[str, str, bytes], **fields: Any) -> str:
    """Run an execution that produced these artifacts, each with name, media type and bytes, and return its name."""
    name = str((await gateway.post({"code": "1", **fields}, "?wait=0")).json["name"])
    return add_artifacts(gateway, broker, name, *artifacts, user=fields.get("user", ""))


def add_artifacts(
    gateway: Gateway, broker: FakeBroker, name: str, *artifacts: tuple[str, str, bytes], user: str = ""
) -> str:
    uid = gateway.executions[name]["metadata"]["uid"]
    owner = Owner(namespace="agents", caller="team-a", user=user).digest
    items = []
    for number, (title, media_type, content) in enumerate(artifacts):
        broker.files.artifacts[owner, uid, f"a{number}"] = content
        digest = hashlib.sha256(content).hexdigest()
        item = {"id": f"a{number}", "name": title, "mediaType": media_type, "bytes": len(content), "sha256": digest}
        items.append({**item, "title": f"T{number}", "preview": "some text"})
    gateway.finish(name, artifacts=items)
    return name


async def test_an_execution_s_artifacts_are_listed_with_links_and_read(gateway: Gateway, broker: FakeBroker) -> None:
    name = await produce(gateway, broker, ("plot.png", "image/png", PNG), ("a.csv", "text/csv", b"a,b"), user="ann")
    answer = await gateway.ask("GET", f"/v1/executions/{name}/artifacts")
    ArtifactList.model_validate_json(answer.text)
    first, second = answer.json["items"]
    assert (first["id"], first["name"], first["mediaType"], first["title"]) == ("a0", "plot.png", "image/png", "T0")
    shown = await gateway.ask("GET", f"/v1/executions/{name}")
    Execution.model_validate_json(shown.text)
    assert [each["id"] for each in shown.json["artifacts"]] == ["a0", "a1"]
    async with gateway.request("GET", f"/v1/executions/{name}/artifacts/a0") as got:
        assert (await got.read(), got.headers["Content-Type"]) == (PNG, "image/png")
    async with gateway.session.get(first["url"]) as got:
        assert (await got.read(), got.headers["Content-Type"]) == (PNG, "image/png")
        assert got.headers["Content-Disposition"] == 'inline; filename="plot.png"'
        tag = got.headers["ETag"]
    async with gateway.session.get(second["url"], headers={"If-None-Match": tag}) as got:
        assert await got.text() == "a,b"
    assert_problem(await gateway.ask("GET", f"/v1/executions/{name}/artifacts/a2"), 404)
    assert_problem(await gateway.ask("GET", f"/v1/executions/{name}/artifacts", key=OTHER_KEY), 404)


async def test_hostile_content_runs_nothing_in_the_gateway_s_origin(gateway: Gateway, broker: FakeBroker) -> None:
    types = {
        "text/html": ("text/html; charset=utf-8", "inline"),
        "image/svg+xml": ("image/svg+xml", "inline"),
        "text/plain": ("text/plain; charset=utf-8", "inline"),
        "application/javascript": ("application/octet-stream", "attachment"),
        "application/xhtml+xml": ("application/octet-stream", "attachment"),
        "text/xml": ("application/octet-stream", "attachment"),
        "multipart/x-mixed-replace": ("application/octet-stream", "attachment"),
    }
    execution = await produce(gateway, broker, *(("a", each, b"<script>alert(1)</script>") for each in types))
    items = (await gateway.ask("GET", f"/v1/executions/{execution}/artifacts")).json["items"]
    for item in items:
        for answer in (
            await gateway.ask("GET", item["url"].removeprefix(gateway.url), key=None),
            await gateway.ask("GET", f"/v1/executions/{execution}/artifacts/{item['id']}"),
        ):
            shown = answer.headers["Content-Type"], answer.headers["Content-Disposition"].partition(";")[0]
            assert shown == types[item["mediaType"]]
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            policy = answer.headers["Content-Security-Policy"]
            assert policy.startswith("sandbox; default-src 'none';")
            assert "allow-" not in policy
            assert "script-src" not in policy


async def test_a_hostile_name_is_no_header_and_no_path(gateway: Gateway, broker: FakeBroker) -> None:
    hostile = '../..\\x"; filename=evil.exe\r\nSet-Cookie: a=b\u202e.png'
    execution = await produce(gateway, broker, (hostile, "text/plain", b"x"))
    url = (await gateway.ask("GET", f"/v1/executions/{execution}/artifacts")).json["items"][0]["url"]
    answer = await gateway.ask("GET", f"/v1/executions/{execution}/artifacts/a0")
    assert (answer.status, url.isascii()) == (200, True)
    assert "Set-Cookie" not in answer.headers
    disposition = answer.headers["Content-Disposition"]
    assert disposition.startswith('inline; filename="x__ filename=evil.exe__Set-Cookie_ a=b_.png"; filename*=UTF-8')
    assert "\\" not in disposition
    assert "/" not in disposition


async def test_a_link_is_refused_after_its_time_and_if_it_was_changed(gateway: Gateway, broker: FakeBroker) -> None:
    name = await produce(gateway, broker, ("notes.txt", "text/plain", b"notes"))
    other = await produce(gateway, broker, ("other.png", "image/png", PNG))
    metadata = gateway.executions[name]["metadata"]
    links = gateway.dependencies.get(Files).artifacts.links
    address = ArtifactAddress(namespace="agents", execution=name, uid=metadata["uid"], id="a0")
    valid, _ = links.build_path(address, seconds=60)
    expired, _ = links.build_path(address, seconds=-1)
    foreign, _ = LinkSigner(keys=SandboxKeys(b"another")).build_path(address, seconds=60)
    assert (await gateway.ask("GET", valid, key=None)).status == 200
    problem = assert_problem(await gateway.ask("GET", expired, key=None), 410)
    assert (problem.type, "has expired" in problem.detail) == ("urn:mcp-exec:problem:expired", True)
    later = valid.replace("expires=", "expires=9")
    for changed in (foreign, later, valid.replace(name, other), valid[:-1] + "0x"[valid[-1] == "0"], valid + "é"):
        answer = await gateway.ask("GET", changed, key=None)
        assert answer.status in (403, 422), changed
    for query in ("", "?uid=a&expires=x&signature=b", f"?{urlsplit(valid).query}&key=1"):
        assert_status = (await gateway.ask("GET", urlsplit(valid).path + query, key=None)).status
        assert assert_status == 422, query


async def test_a_link_ends_with_its_execution(gateway: Gateway, broker: FakeBroker, api: FakeApiServer) -> None:
    name = await produce(gateway, broker, ("plot.png", "image/png", PNG))
    path = (await gateway.ask("GET", f"/v1/executions/{name}/artifacts")).json["items"][0]["url"]
    stored = api.collections[CEX][name]
    api.remove(CEX, name)
    assert_problem(await gateway.ask("GET", path.removeprefix(gateway.url), key=None), 404)
    api.put(CEX, {**stored, "metadata": {**stored["metadata"], "uid": "another"}})
    assert_problem(await gateway.ask("GET", path.removeprefix(gateway.url), key=None), 404)


async def test_guesses_of_links_are_limited_by_address(gateway: Gateway) -> None:
    gateway.stop_refills()
    statuses = [
        (await gateway.ask("GET", "/v1/artifacts/agents/e/a?uid=u&expires=9&signature=0", key=None)).status
        for _ in range(40)
    ]
    assert statuses == [403] * 30 + [429] * 10
    assert (await gateway.ask("GET", "/v1/stats", key=KEY)).status == 200


async def test_links_have_the_address_by_which_clients_reach_the_gateway(
    gateway: Gateway, broker: FakeBroker, api: FakeApiServer
) -> None:
    name = await produce(gateway, broker, ("plot.png", "image/png", PNG))
    path = f"/v1/executions/{name}/artifacts?linkSeconds=60"
    headers = {"Host": "gateway.example.com", "X-Forwarded-Proto": "https"}
    (item,) = (await gateway.ask("GET", path, headers=headers)).json["items"]
    assert item["url"].startswith("https://gateway.example.com/v1/artifacts/agents/")
    async with serving(api, broker_service="mcp-exec-broker", public_url="https://public.example/x/") as public:
        (item,) = (await public.ask("GET", path, headers=headers)).json["items"]
        assert item["url"].startswith("https://public.example/x/v1/artifacts/agents/")
    assert_problem(await gateway.ask("GET", path.replace("60", "86401")), 422, "linkSeconds")


async def test_a_warning_about_the_broker_names_the_execution_and_the_caller(
    gateway: Gateway, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    name = await produce(gateway, broker, ("plot.png", "image/png", PNG))
    broker.broken = True
    await gateway.ask("GET", f"/v1/executions/{name}/artifacts/a0")
    await gateway.ask("GET", "/v1/workspaces")
    warnings = [entry for entry in caplog.records if "did not serve a request on files" in entry.getMessage()]
    fields = [
        tuple(getattr(entry, field, None) for field in ("execution", "caller", "namespace")) for entry in warnings
    ]
    assert fields == [(name, "team-a", "agents"), (None, "team-a", "agents")]


async def test_a_broker_that_lost_an_artifact_makes_a_problem(gateway: Gateway, broker: FakeBroker) -> None:
    name = await produce(gateway, broker, ("plot.png", "image/png", PNG))
    broker.files.artifacts.clear()
    assert_problem(await gateway.ask("GET", f"/v1/executions/{name}/artifacts/a0"), 404)
    broker.broken = True
    assert_problem(await gateway.ask("GET", f"/v1/executions/{name}/artifacts/a0"), 503)
