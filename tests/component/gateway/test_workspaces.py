"""Workspaces over REST: a caller's own alone, bytes that pass through the gateway, hostile paths and sizes."""

import asyncio
import hashlib
import io
import itertools
import json
import tarfile
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from tests.component.gateway.conftest import KEY, OTHER_KEY, Gateway, serving
from tests.component.gateway.test_refusals import assert_problem
from tests.component.gateway.test_sessions import two_callers
from tests.support.api_server import FakeApiServer
from tests.support.broker import FakeBroker
from tests.support.constants import DEADLINE
from tests.support.until import until
from yarl import URL

from mcp_exec_api.files import Owner
from mcp_exec_common.broker.files import FilesReason
from mcp_exec_gateway.features.files.service import Files

OWNER = Owner(namespace="agents", caller="team-a").digest
PATH = "/v1/workspaces/sales"


@pytest.fixture
async def gateway(api: FakeApiServer, broker: FakeBroker) -> AsyncIterator[Gateway]:
    async with serving(api, broker_service="mcp-exec-broker", max_upload_bytes=2**20, max_transfers=3) as made:
        yield made


async def put(gateway: Gateway, path: str, content: bytes | AsyncIterator[bytes] = b"", **options: Any) -> Any:
    data = io.BytesIO(content) if isinstance(content, bytes) else content
    return await gateway.ask("PUT", f"{PATH}/{path}", data=data, **options)


async def test_a_file_is_written_read_listed_and_deleted(gateway: Gateway, broker: FakeBroker) -> None:
    content = bytes(range(256)) * 4000
    answer = await put(gateway, "files/data/ü%20b%25.bin", content[: 2**20])
    assert (answer.status, answer.json["version"]) == (200, 1)
    path = "data/ü b%.bin"
    assert broker.files.workspaces[OWNER, "sales"].files == {path: content[: 2**20]}
    async with gateway.request("GET", f"{PATH}/files/data/%C3%BC%20b%25.bin") as got:
        assert (got.status, await got.read()) == (200, content[: 2**20])
        tag = got.headers["ETag"]
        assert tag == f'"{hashlib.sha256(content[: 2**20]).hexdigest()}"'
        assert got.headers["Content-Disposition"].startswith("attachment; filename=")
        assert (got.headers["Content-Type"], got.headers["X-Content-Type-Options"]) == (
            "application/octet-stream",
            "nosniff",
        )
    unchanged = await gateway.ask(
        "GET", f"{PATH}/files/data/%C3%BC%20b%25.bin", headers={"If-None-Match": f'W/"x", {tag}'}
    )
    assert (unchanged.status, unchanged.text) == (304, "")
    listed = (await gateway.ask("GET", f"{PATH}/files?prefix=data/")).json
    assert [(each["path"], each["size"]) for each in listed["items"]] == [(path, len(content[: 2**20]))]
    assert (await gateway.ask("DELETE", f"{PATH}/files/data")).json["files"] == 0
    assert_problem(await gateway.ask("GET", f"{PATH}/files/data/x"), 404)


async def test_a_file_that_no_code_would_see_is_refused_before_it_is_sent(gateway: Gateway, broker: FakeBroker) -> None:
    for path in (".mcp-exec/a", "servers/a", "artifacts"):
        answer = await put(gateway, f"files/{path}", b"1")
        assert "write it below another name" in assert_problem(answer, 422, "path").detail
        assert_problem(await gateway.ask("DELETE", f"{PATH}/files/{path}"), 404)
    assert (await put(gateway, "files/sub/artifacts/a", b"1")).status == 200


async def test_a_client_that_sends_all_of_a_refused_file_before_it_reads_gets_the_reason(gateway: Gateway) -> None:
    size = 12 * 2**20
    url = URL(gateway.url)
    head = (
        f"PUT {PATH}/files/large HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {KEY}\r\n"
        f"Content-Length: {size}\r\n\r\n"
    )
    async with asyncio.timeout(DEADLINE):
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(head.encode() + bytes(size))
        await writer.drain()
        response = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert response.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close\r\n" in response
    assert b"the body has more than 1048576 bytes" in response


async def test_settings_versions_and_archives(gateway: Gateway, broker: FakeBroker) -> None:
    created = await gateway.ask("PUT", PATH, json={"description": "Sales", "ttlSeconds": 7200})
    assert (created.status, created.json["description"], created.json["ttlSeconds"]) == (200, "Sales", 7200)
    assert_problem(await gateway.ask("PUT", PATH, json={"ttl": 5}), 422, "ttl")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in ("a.txt", "b/c.txt"):
            entry = tarfile.TarInfo(name)
            entry.size = 2
            tar.addfile(entry, io.BytesIO(b"hi"))
    await put(gateway, "files/old.txt", b"1")
    assert (await put(gateway, "archive?replace=true", archive.getvalue())).json["files"] == 2
    async with gateway.request("GET", f"{PATH}/archive") as got:
        assert got.headers["Content-Type"] == "application/x-tar"
        assert 'filename="sales.tar"' in got.headers["Content-Disposition"]
        with tarfile.open(fileobj=io.BytesIO(await got.read())) as tar:
            assert tar.getnames() == ["a.txt", "b/c.txt"]
    versions = (await gateway.ask("GET", f"{PATH}/versions")).json["items"]
    assert [each["version"] for each in versions] == [2, 1]
    assert (await gateway.ask("GET", f"{PATH}/files/old.txt?version=1")).text == "1"
    assert (await gateway.ask("POST", f"{PATH}/restore", json={"version": 1})).json["version"] == 3
    assert_problem(await gateway.ask("POST", f"{PATH}/restore", json={"version": 9}), 404)
    assert_problem(await gateway.ask("POST", f"{PATH}/restore", json={"version": 0}), 422, "version")
    assert [each["name"] for each in (await gateway.ask("GET", "/v1/workspaces")).json["items"]] == ["sales"]
    assert (await gateway.ask("DELETE", PATH)).status == 204
    assert_problem(await gateway.ask("DELETE", PATH), 404)


async def test_an_outdated_write_is_a_412_that_has_the_current_version(gateway: Gateway, broker: FakeBroker) -> None:
    first = await put(gateway, "files/a", b"1", headers={"If-None-Match": "*"})
    second = await put(gateway, "files/a", b"2", headers={"If-Match": f'"{first.json["etag"]}"'})
    assert (first.status, second.status, second.json["version"]) == (200, 200, 2)
    change = json.dumps({"delete": ["a"]}).encode() + b"\n" + bytes(1024)
    stale = {"If-Match": f'"{first.json["etag"]}"'}
    for method, path, body in (
        ("PUT", "/files/a", b"3"),
        ("DELETE", "/files/a", None),
        ("PUT", "/archive", bytes(1024)),
        ("POST", "/changes", change),
    ):
        answer = await gateway.ask(method, PATH + path, data=body, headers=stale)
        assert assert_problem(answer, 412).type == "urn:mcp-exec:problem:outdated"
        assert answer.headers["X-Workspace-Version"] == "2"
    for path in ("", "/files"):
        assert (await gateway.ask("GET", PATH + path)).headers["ETag"] == f'"{second.json["etag"]}"'
    current = {"If-Match": f'"{second.json["etag"]}"'}
    changed = await gateway.ask("POST", f"{PATH}/changes", data=change, headers=current)
    assert (changed.status, changed.json["files"], changed.headers["ETag"]) == (200, 0, '"w1-3"')


async def test_owners_never_meet_whatever_they_name_their_workspaces(gateway: Gateway, broker: FakeBroker) -> None:
    await two_callers(gateway, users=["ann"])
    await put(gateway, "files/a", b"a's")
    await put(gateway, "files/a?user=ann", b"ann's")
    assert_problem(await gateway.ask("GET", f"{PATH}/files/a", key=OTHER_KEY), 404)
    assert (await gateway.ask("GET", "/v1/workspaces", key=OTHER_KEY)).json["items"] == []
    assert (await gateway.ask("GET", f"{PATH}/files/a?user=ann")).text == "ann's"
    assert_problem(await gateway.ask("GET", f"{PATH}/files/a?user=bob"), 403, "user")
    assert {owner for owner, _ in broker.files.workspaces} == {
        OWNER,
        Owner(namespace="agents", caller="team-a", user="ann").digest,
    }


async def test_a_hostile_path_reaches_no_broker(gateway: Gateway, broker: FakeBroker) -> None:
    hostile = ["%2e%2e/x", "a/../../x", "a//b", "/etc/passwd", "a%00b", "a%5Cb", "x" * 300, "%E2%80%AEx", "a/b/" * 20]
    for method, path in itertools.product(("GET", "PUT", "DELETE"), hostile):
        async with gateway.session.request(
            method,
            URL(f"{gateway.url}{PATH}/files/{path}", encoded=True),
            headers={"Authorization": f"Bearer {KEY}"},
        ) as answer:
            assert answer.status in (404, 422), path
    assert not [each for each in broker.paths if "workspaces" in each]
    assert_problem(await gateway.ask("GET", "/v1/workspaces/..%2Fx"), 404)
    assert_problem(await gateway.ask("GET", "/v1/workspaces/A_B"), 422, "name")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
@pytest.mark.parametrize(("url", "field"), [("a%FF", "path"), ("%C3", "path"), ("a?user=%FE", "query")])
async def test_a_url_that_is_not_utf_8_names_no_file(gateway: Gateway, method: str, url: str, field: str) -> None:
    url = f"{gateway.url}{PATH}/files/{url}"
    headers = {"Authorization": f"Bearer {KEY}"}
    async with gateway.session.request(method, URL(url, encoded=True), headers=headers, data=b"x") as answer:
        assert answer.status == 422
        assert [error["field"] for error in (await answer.json())["errors"]] == [field]


async def test_a_body_beyond_the_limit_is_refused_also_without_a_length(gateway: Gateway, broker: FakeBroker) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield bytes(2**16)

    problem = assert_problem(await put(gateway, "files/big", parts()), 413)
    assert "more than 1048576 bytes" in problem.detail
    assert_problem(await put(gateway, "files/big", bytes(2**20 + 1)), 413)
    assert_problem(await put(gateway, "files/a", b"x", headers={"Content-Encoding": "gzip"}), 415)
    broker.files.max_file_bytes = 10
    assert assert_problem(await put(gateway, "files/b", bytes(2**19)), 413).type.endswith(":quota")
    assert not broker.files.workspaces.get((OWNER, "sales"), None) or not broker.files.workspaces[OWNER, "sales"].files


async def test_a_refusal_of_the_broker_is_a_problem(gateway: Gateway, broker: FakeBroker) -> None:
    for reason, status, kind in (
        (FilesReason.CONFLICT, 409, "changed"),
        (FilesReason.BUSY, 429, "too-many"),
        (FilesReason.UNAVAILABLE, 503, "unavailable"),
        (FilesReason.NOT_ALLOWED, 503, "unavailable"),
        (FilesReason.DISABLED, 404, "not-found"),
        (FilesReason.INVALID, 422, "invalid"),
    ):
        broker.files.refusal = reason
        for method, path in (("GET", "/files/a"), ("GET", ""), ("PUT", "/files/a")):
            problem = assert_problem(await gateway.ask(method, PATH + path), status)
            assert problem.type == f"urn:mcp-exec:problem:{kind}"


async def test_a_content_that_breaks_off_never_looks_complete(gateway: Gateway, broker: FakeBroker) -> None:
    await put(gateway, "files/a", bytes(300_000))
    broker.files.breaks_off = True
    with pytest.raises(aiohttp.ClientError):
        await gateway.ask("GET", f"{PATH}/files/a")
    broker.files.breaks_off = False
    assert len((await gateway.ask("GET", f"{PATH}/files/a")).text) == 300_000
    assert gateway.dependencies.memory.used == 0
    assert gateway.dependencies.get(Files).transfer_slots.open == 0


async def test_an_api_key_has_so_many_workspaces_as_its_limit(gateway: Gateway, broker: FakeBroker) -> None:
    await two_callers(gateway, maxWorkspaces=1)
    await put(gateway, "files/a", b"1")
    for second in (
        await gateway.ask("PUT", "/v1/workspaces/second", json={}),
        await gateway.post({"code": "1", "workspace": "second"}, "?wait=0"),
    ):
        assert "its limit is 1" in assert_problem(second, 413).detail
    assert (await gateway.post({"code": "1", "workspace": "sales"}, "?wait=0")).status == 202
    asked = len(broker.asked)
    assert (await gateway.post({"code": "1", "workspace": {"name": "sales", "mode": "Read"}}, "?wait=0")).status == 202
    assert len(broker.asked) == asked, "a known workspace costs no request"
    stored = [each["spec"]["workspace"] for each in gateway.executions.values()]
    assert stored == [{"name": "sales", "mode": "Write"}, {"name": "sales", "mode": "Read"}]
    assert (await gateway.ask("PUT", "/v1/workspaces/second", json={}, key=OTHER_KEY)).status == 200


async def test_a_caller_gets_no_more_workspaces_by_naming_other_users(gateway: Gateway, broker: FakeBroker) -> None:
    await two_callers(gateway, maxWorkspaces=1)
    await put(gateway, "files/a?user=ann", b"1")
    for second in (
        await gateway.ask("PUT", "/v1/workspaces/second?user=bob", json={}),
        await gateway.post({"code": "1", "workspace": "sales", "user": "bob"}, "?wait=0"),
    ):
        assert "those of all its users included, its limit is 1" in assert_problem(second, 413).detail
    assert len(broker.files.workspaces) == 1


async def test_a_workspace_that_can_not_be_is_refused_by_its_field(gateway: Gateway) -> None:
    for workspace in ("Not a name", "", {"name": "a", "mode": "Append"}, {"mode": "Read"}, 5):
        answer = await gateway.post({"code": "1", "workspace": workspace}, "?wait=0")
        assert answer.status == 422
        assert all(error["field"].startswith("workspace") for error in answer.json["errors"]), answer.text


async def test_transfers_are_so_many_at_once_as_the_limit(gateway: Gateway) -> None:
    going = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"1"
        await going.wait()

    writes = [asyncio.create_task(put(gateway, f"files/{number}", slow())) for number in range(3)]
    await until(lambda: gateway.dependencies.get(Files).transfer_slots.open == 3)
    assert_problem(await put(gateway, "files/more", b"1"), 429)
    going.set()
    assert {each.status for each in await asyncio.gather(*writes)} == {200}


async def test_without_a_broker_there_are_no_files(api: FakeApiServer) -> None:
    async with serving(api) as gateway:
        assert "no files are stored" in assert_problem(await gateway.ask("GET", "/v1/workspaces"), 503).detail
        assert json.loads((await gateway.post({"code": "1", "workspace": "a"}, "?wait=0")).text)["phase"] == "Pending"
