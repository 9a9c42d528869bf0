"""Workspaces and artifacts over both ports of the broker, on a volume and in S3."""

import asyncio
import io
import json
import tarfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.component.broker.conftest import World, grant, running
from tests.component.broker.files_client import (
    OWNER,
    FakeSandbox,
    commit_body,
    digest,
    files_client,
    files_grant,
    find_store,
    frame,
    frames,
)
from tests.support.api_server import FakeApiServer
from tests.support.files_client import FilesClient, FilesError, WriteCondition
from tests.support.s3_server import S3Server, running_s3

from mcp_exec_api.files import Owner
from mcp_exec_api.wire.workspaces import WorkspaceSettings
from mcp_exec_common.broker.files import (
    ARTIFACTS_PATH,
    BLOBS_PATH,
    COMMIT_PATH,
    CONTENTS_PATH,
    MANIFEST_PATH,
    MISSING_PATH,
    FilesReason,
)

ME = Owner(namespace="agents", caller="me")
YOU = Owner(namespace="agents", caller="you")


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with running_s3() as server:
        yield server


def settings_of(kind: str, folder: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    if kind == "volume":
        return {"files_folder": folder / "files"}
    server: S3Server = request.getfixturevalue("s3")
    return server.settings(folder)


@pytest.fixture(params=["volume", "s3"])
async def files(request: pytest.FixtureRequest, api: FakeApiServer, tmp_path: Path) -> AsyncIterator[World]:
    limits = {"files_workspace_bytes": 3_000_000, "files_file_bytes": 2_000_000, "files_workspace_files": 50}
    async with running(api, tmp_path, **settings_of(request.param, tmp_path, request), **limits) as world:
        yield world


@pytest.fixture
def sandbox(files: World) -> FakeSandbox:
    return FakeSandbox(files, files_grant(owner=ME.digest))


@pytest.fixture
def client(files: World) -> FilesClient:
    return files_client(files)


async def read(client: FilesClient, owner: Owner, name: str, path: str, **options: Any) -> bytes:
    async with client.open_file(owner, name, path, **options) as stream:
        return b"".join([chunk async for chunk in stream.chunks])


async def refused(work: Any) -> FilesReason:
    with pytest.raises(FilesError) as caught:
        await work
    return caught.value.reason


def make_tar(*entries: tuple[str, bytes, Any]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data, kind in entries:
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, len(data), "/etc/passwd" if kind in b"12" else ""
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


async def test_files_of_one_run_are_there_for_the_next(sandbox: FakeSandbox, files: World) -> None:
    head, found = await sandbox.fetch()
    assert (head["version"], found) == (0, {})
    kept = {"a.txt": b"one", "b/c.bin": bytes(range(256)) * 6000, "b/same.txt": b"one", "empty": b""}
    result = await sandbox.save(kept)
    assert (result["version"], result["changedFiles"], result["files"]) == (1, 4, 4)
    next_run = FakeSandbox(files, files_grant(owner=ME.digest, execution="uid-2"))
    head, found = await next_run.fetch()
    assert (head["version"], found) == (1, kept)
    changed = kept | {"a.txt": b"two"}
    del changed["empty"]
    missing = {"sha256": [digest(content) for content in changed.values()]}
    assert (await next_run.ask("POST", MISSING_PATH, json.dumps(missing)))["missing"] == [digest(b"two")]
    result = await next_run.save(changed)
    assert (result["version"], result["changedFiles"]) == (2, 2)
    assert (await next_run.save(changed))["version"] == 2, "nothing changed"
    status, _ = await next_run.send("GET", MANIFEST_PATH, **{"If-None-Match": f'"{head["id"]}-2"'})
    assert status == 304


async def test_two_writers_never_commit_the_same_version(files: World, sandbox: FakeSandbox) -> None:
    head, _ = await sandbox.manifest()
    runs = [FakeSandbox(files, files_grant(owner=ME.digest, execution=f"uid-{number}")) for number in range(6)]
    results = await asyncio.gather(*(run.save({f"file-{n}": b"%d" % n}, head=head) for n, run in enumerate(runs)))
    assert sorted(result["version"] for result in results) == [1, 2, 3, 4, 5, 6]
    _, found = await sandbox.fetch()
    assert found == {f"file-{n}": b"%d" % n for n in range(6)}
    status, body = await runs[0].send("POST", BLOBS_PATH, frames(b"mine"))
    assert status == 200, body
    status, body = await runs[0].send("POST", COMMIT_PATH, commit_body(head["id"], 0, {"file-3": b"mine"}))
    assert (status, json.loads(body)["reason"]) == (409, "Conflict")
    assert "file-3" in json.loads(body)["message"]


async def test_a_commit_whose_answer_was_lost_is_repeated_without_a_second_version(sandbox: FakeSandbox) -> None:
    head, _ = await sandbox.manifest()
    first = await sandbox.save({"a": b"1"}, head=head)
    again = await sandbox.ask("POST", COMMIT_PATH, commit_body(head["id"], 0, {"a": b"1"}))
    assert first["version"] == again["version"] == 1


async def test_a_reader_keeps_its_snapshot_and_writes_nothing(files: World, sandbox: FakeSandbox) -> None:
    await sandbox.save({"a": b"old"})
    await sandbox.save({"a": b"new"})
    reader = FakeSandbox(files, files_grant(owner=ME.digest, mode="Read", version=1))
    assert (await reader.fetch())[1] == {"a": b"old"}
    for path in (BLOBS_PATH, COMMIT_PATH, MISSING_PATH):
        status, body = await reader.send("POST", path, b"")
        assert (status, json.loads(body)["reason"]) == (403, "NotAllowed")
    status, _ = await reader.send("POST", CONTENTS_PATH, json.dumps({"version": 2, "sha256": [digest(b"new")]}))
    assert status == 403
    missing = FakeSandbox(files, files_grant(owner=ME.digest, mode="Read", name="other"))
    assert (await missing.send("GET", MANIFEST_PATH))[0] == 404


async def test_an_owner_cannot_find_out_what_others_store(files: World, sandbox: FakeSandbox) -> None:
    await sandbox.save({"a": b"a secret"})
    other = FakeSandbox(files, files_grant(owner=YOU.digest, execution="uid-2"))
    head, found = await other.fetch()
    assert (head["version"], found) == (0, {})
    missing = await other.ask("POST", MISSING_PATH, json.dumps({"sha256": [digest(b"a secret")]}))
    assert missing["missing"] == [digest(b"a secret")]
    status, body = await other.send("POST", COMMIT_PATH, commit_body(head["id"], 0, {"a": b"a secret"}))
    assert (status, json.loads(body)["missing"]) == (409, [digest(b"a secret")])
    client = files_client(files)
    assert [item.name for item in (await client.list_workspaces(ME)).items] == ["data"]
    assert await refused(read(client, YOU, "data", "a")) is FilesReason.NO_FILE
    assert await refused(read(client, Owner(namespace="agents"), "data", "a")) is FilesReason.NO_WORKSPACE


async def test_a_grant_that_is_not_the_sandboxs_own_is_refused(api: FakeApiServer, tmp_path: Path) -> None:
    async with running(api, tmp_path, files_folder=tmp_path / "files", replica="pod-1") as world:
        assert (await FakeSandbox(world, files_grant(replica="pod-1")).send("GET", MANIFEST_PATH))[0] == 200
        for token, message in (
            (files_grant(replica="pod-1", expires=1), "expired"),
            (files_grant(replica="pod-1", expires=2**40), "valid for more than"),
            (files_grant(replica="pod-1", pod_address="10.0.0.1"), "another address"),
            (files_grant(replica="pod-1", namespace="other"), "does not serve"),
            (files_grant(replica="pod-2"), "another replica"),
            (grant(), "not valid"),
            ("x" * 9000, "no grant"),
        ):
            status, body = await FakeSandbox(world, token).send("GET", MANIFEST_PATH)
            assert (status, json.loads(body)["reason"]) == (401, "NotAuthenticated")
            assert message in json.loads(body)["message"]


async def test_a_content_that_has_not_its_digest_is_not_stored(sandbox: FakeSandbox) -> None:
    head, _ = await sandbox.manifest()
    for body in (
        frame(b"good")[:65] + b"4\nevil",
        frame(b"cut off")[:-1],
        frame(b"x" * 200_000)[:-1] + b"y",
        b"not a frame\n",
        digest(b"x").encode() + b" -1\nx",
        digest(b"x").encode() + b" 2000001\n",
    ):
        status, _ = await sandbox.send("POST", BLOBS_PATH, body)
        assert status in (400, 413)
    status, body = await sandbox.send("POST", COMMIT_PATH, commit_body(head["id"], 0, {"a": b"evil", "b": b"good"}))
    assert (status, len(json.loads(body)["missing"])) == (409, 2)


HOSTILE_FILES: tuple[Any, ...] = (
    *({"path": path} for path in ("../a", "/a", "a\0", "\ud800", "x" * 9000, 7, None)),
    *({"path": "a", "size": size} for size in (-1, 1.5, True, "1", 2**60, 0)),
    *({"path": "a", "mode": mode} for mode in (0o4755, 0o777, -1, "420")),
    *({"path": "a", "sha256": sha256} for sha256 in ("A" * 64, "", None)),
    {"path": "a", "link": "/etc/passwd"},
    [],
)


async def test_a_commit_with_a_hostile_file_is_refused(api: FakeApiServer, tmp_path: Path) -> None:
    async with running(api, tmp_path, files_folder=tmp_path / "files") as world:
        sandbox = FakeSandbox(world, files_grant())
        head, _ = await sandbox.manifest()
        good = {"path": "a", "size": 1, "sha256": digest(b"x"), "mode": 420}
        await sandbox.ask("POST", BLOBS_PATH, frames(b"x"))
        start = json.dumps({"id": head["id"], "base": 0, "files": 1}) + "\n"
        for line in HOSTILE_FILES:
            text = json.dumps(good | line if line else line)
            status, answer = await sandbox.send("POST", COMMIT_PATH, start + text + "\n")
            assert (status, json.loads(answer)["reason"]) == (400, "Invalid"), line
        for body in (b"", b"{}", b"[" * 8000, start.encode(), (start + (json.dumps(good) + "\n") * 2).encode()):
            assert (await sandbox.send("POST", COMMIT_PATH, body))[0] == 400
        twice = start.replace('"files": 1', '"files": 2') + (json.dumps(good) + "\n") * 2
        assert (await sandbox.send("POST", COMMIT_PATH, twice))[0] == 400
        assert (await sandbox.manifest())[0]["version"] == 0


async def test_quotas_hold_for_executions_and_others(sandbox: FakeSandbox, client: FilesClient) -> None:
    head, _ = await sandbox.manifest()
    assert (head["maxBytes"], head["maxFiles"], head["maxFileBytes"]) == (3_000_000, 50, 2_000_000)
    many = {f"f{n}": b"x" for n in range(51)}
    await sandbox.ask("POST", BLOBS_PATH, frames(b"x"))
    status, body = await sandbox.send("POST", COMMIT_PATH, commit_body(head["id"], 0, many))
    assert (status, json.loads(body)["reason"]) == (413, "TooLarge")
    status, _ = await sandbox.send("POST", BLOBS_PATH, frames(b"a" * 1_900_000, b"b" * 1_900_000))
    assert status == 413
    await client.put_workspace(ME, "data", WorkspaceSettings(max_bytes=10, description="small"))
    assert await refused(client.put_file(ME, "data", "a", b"x" * 11)) is FilesReason.TOO_LARGE
    assert (await client.put_file(ME, "data", "a", b"x" * 10)).version == 1
    assert await refused(client.put_workspace(ME, "data", WorkspaceSettings(max_bytes=2**40))) is FilesReason.INVALID
    info = await client.get_workspace(ME, "data")
    assert (info.description, info.max_bytes, info.bytes, info.files) == ("small", 10, 10, 1)


async def test_a_caller_gets_no_more_workspaces_by_requests_at_the_same_time(client: FilesClient) -> None:
    owners = [Owner(namespace="agents", caller="me", user=f"user-{number}") for number in range(12)]
    requests = [client.put_file(owner, "data", "a", b"x", caller_limit=2) for owner in owners]
    requests += [client.put_workspace(owner, "more", WorkspaceSettings(), caller_limit=2) for owner in owners]
    results = await asyncio.gather(*requests, return_exceptions=True)
    assert sum(not isinstance(result, BaseException) for result in results) == 2
    assert await client.count_workspaces(ME) == 2
    assert await refused(client.put_tar(ME, "data", make_tar(), caller_limit=2)) is FilesReason.TOO_LARGE
    assert await refused(client.put_file(ME, "data", "a", b"x", caller_limit=0)) is FilesReason.TOO_LARGE
    assert (await client.put_file(YOU, "data", "a", b"x", caller_limit=2)).version == 1
    assert (await client.put_file(ME, "data", "a", b"x")).version == 1


async def test_a_refused_write_leaves_no_workspace(client: FilesClient) -> None:
    many = make_tar(*((f"f{number}", b"x", tarfile.REGTYPE) for number in range(51)))
    for write in (
        client.put_file(ME, "one", "a", b"x" * 2_000_001),
        client.put_tar(ME, "two", many),
        client.put_tar(ME, "three", make_tar(("../x", b"", tarfile.REGTYPE))),
        client.change(ME, "four", b"no JSON\n" + many),
        client.change(ME, "five", b"{}\n" + make_tar(("a", b"x", tarfile.REGTYPE))[:-10_000]),
    ):
        assert await refused(write) in (FilesReason.TOO_LARGE, FilesReason.INVALID)
    assert (await client.list_workspaces(ME)).items == []


async def test_first_writes_at_the_same_time_make_one_workspace(client: FilesClient) -> None:
    writes = [client.put_file(ME, "data", f"f{number}", b"%d" % number, caller_limit=1) for number in range(3)]
    results = await asyncio.gather(*writes, return_exceptions=True)
    stored = [result for result in results if not isinstance(result, BaseException)]
    # in S3, writers take so much memory that others have to repeat
    assert {getattr(result, "reason", None) for result in results} <= {None, FilesReason.BUSY}
    assert sorted(result.version for result in stored) == list(range(1, len(stored) + 1))
    assert [(item.name, item.files) for item in (await client.list_workspaces(ME)).items] == [("data", len(stored))]


async def test_gateway_and_operator_manage_workspaces(client: FilesClient, sandbox: FakeSandbox) -> None:
    await sandbox.save({"a b/ü.txt": b"one", "run.sh": b"#!"})
    assert await read(client, ME, "data", "a b/ü.txt") == b"one"
    assert (await client.put_file(ME, "data", "new/%25 #?.txt", b"two" * 500_000, executable=True)).version == 2
    page = await client.list_files(ME, "data", limit=2)
    assert [item.path for item in page.items] == ["a b/ü.txt", "new/%25 #?.txt"]
    assert page.next == "new/%25 #?.txt"
    rest = await client.list_files(ME, "data", after=page.next)
    assert ([item.path for item in rest.items], rest.next) == (["run.sh"], None)
    assert (await client.delete_files(ME, "data", "new")).version == 3
    assert await refused(client.delete_files(ME, "data", "new")) is FilesReason.NO_FILE
    assert await refused(client.put_file(ME, "data", "run.sh/x", b"")) is FilesReason.INVALID
    assert (await client.restore(ME, "data", 2)).version == 4
    assert await read(client, ME, "data", "new/%25 #?.txt") == b"two" * 500_000
    versions = (await client.list_versions(ME, "data")).items
    assert [(item.version, item.restored, item.execution) for item in versions] == [
        *((4, 2, ""), (3, None, ""), (2, None, "")),
        (1, None, "uid-1"),
    ]
    await client.delete_workspace(ME, "data")
    assert await refused(client.get_workspace(ME, "data")) is FilesReason.NO_WORKSPACE
    head, _ = await sandbox.manifest()
    assert head["version"] == 0, "another workspace of the same name"


def condition(if_match: str | None = None, *, new: bool = False) -> WriteCondition:
    quoted = if_match if if_match in (None, "*") else f'"{if_match}"'
    return WriteCondition(if_match=quoted, if_none_match="*" if new else None)


async def test_an_outdated_writer_is_refused_with_the_current_version(client: FilesClient, files: World) -> None:
    for wanted in (condition("*"), condition("0" * 32 + "-0")):
        assert await refused(client.put_file(ME, "data", "a", b"0", condition=wanted)) is FilesReason.OUTDATED
    assert await refused(client.get_workspace(ME, "data")) is FilesReason.NO_WORKSPACE, "it was not created"
    first = await client.put_file(ME, "data", "a", b"1", condition=condition(new=True))
    second = await client.put_file(ME, "data", "a", b"2", condition=condition(first.etag))
    assert second.etag == (await client.get_workspace(ME, "data")).etag == (await client.list_files(ME, "data")).etag
    again = await client.put_file(ME, "data", "a", b"2", condition=condition(first.etag))
    assert again.version == 2, "what a repeated request wants is there"
    archive = make_tar(("b", b"b", tarfile.REGTYPE))
    for outdated in (
        client.put_file(ME, "data", "a", b"3", condition=condition(first.etag)),
        client.put_file(ME, "data", "a", b"3", condition=condition(digest(b"1"))),
        client.put_file(ME, "data", "a", b"3", condition=condition(new=True)),
        client.put_file(ME, "data", "a", b"2", condition=condition(new=True)),
        client.put_file(ME, "data", "b", b"3", condition=condition("*")),
        client.delete_files(ME, "data", "a", condition=condition(first.etag)),
        client.put_tar(ME, "data", archive, condition=condition(first.etag)),
        client.put_tar(ME, "data", archive, condition=condition(new=True)),
        client.put_tar(ME, "data", make_tar(("a", b"2", tarfile.REGTYPE)), condition=condition(new=True)),
        client.change(ME, "data", b"{}\n" + make_tar(("a", b"2", tarfile.REGTYPE)), condition=condition(new=True)),
        client.change(ME, "data", b"{}\n" + archive, condition=condition(first.etag)),
        client.restore(ME, "data", 1, condition=condition(first.etag)),
    ):
        with pytest.raises(FilesError, match="read it again") as caught:
            await outdated
        assert (caught.value.reason, caught.value.status, caught.value.version) == (FilesReason.OUTDATED, 412, 2)
    assert await read(client, ME, "data", "a") == b"2"
    writers = [client.put_file(ME, "data", "a", b"%d" % n, condition=condition(digest(b"2"))) for n in range(3, 8)]
    results = await asyncio.gather(*writers, return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["CommitResult"] + ["FilesError"] * 4
    async with client.open_tar(ME, "data") as stream:
        assert (await client.delete_files(ME, "data", "a", condition=condition(stream.etag))).version == 4


async def test_a_change_set_is_one_version_or_nothing(client: FilesClient) -> None:
    def change(deleted: list[str], *entries: tuple[str, bytes, Any]) -> bytes:
        return json.dumps({"delete": deleted}).encode() + b"\n" + make_tar(*entries)

    start = make_tar(*((name, b"1", tarfile.REGTYPE) for name in ("a", "b/c", "b/d", "be", "e")))
    await client.put_tar(ME, "data", start)
    result = await client.change(ME, "data", change(["b", "a", "gone"], ("a/x", b"2", tarfile.REGTYPE)))
    assert (result.version, result.changed_files) == (2, 4)
    assert [item.path for item in (await client.list_files(ME, "data")).items] == ["a/x", "be", "e"]
    for hostile in (
        change(["e"], ("../x", b"", tarfile.REGTYPE)),
        change(["e"], ("l", b"", tarfile.SYMTYPE)),
        change(["e"], ("e/x", b"1", tarfile.REGTYPE), ("e", b"1", tarfile.REGTYPE)),
        change(["e"])[:-10_000],
        change([""]),
        b'{"delete": ["e"], "other": 1}\n' + make_tar(),
        b"[" * 9000 + b"\n" + make_tar(),
        json.dumps({"delete": ["x"] * 60_000}).encode() + b"\n" + make_tar(),
        make_tar(),
    ):
        assert await refused(client.change(ME, "data", hostile)) is FilesReason.INVALID
    assert (await client.get_workspace(ME, "data")).version == 2
    assert (await client.change(ME, "data", change(["e", "be", "a/x"]))).files == 0
    assert (await client.change(ME, "new", change(["e"], ("a", b"", tarfile.REGTYPE)))).version == 1


@pytest.mark.parametrize("path", [".mcp-exec", ".mcp-exec/a", "servers/a", "artifacts", "artifacts/a/b"])
async def test_a_file_that_no_code_would_see_is_refused(client: FilesClient, path: str) -> None:
    await client.put_file(ME, "data", "a", b"1")
    for write in (
        client.put_file(ME, "data", path, b"2"),
        client.put_tar(ME, "data", make_tar((path, b"2", tarfile.REGTYPE))),
        client.change(ME, "data", b'{"delete": []}\n' + make_tar((path, b"2", tarfile.REGTYPE))),
    ):
        with pytest.raises(FilesError, match="never see") as caught:
            await write
        assert caught.value.reason is FilesReason.INVALID
    assert (await client.get_workspace(ME, "data")).version == 1
    names = ("sub/artifacts/a", "artifacts2", "skills/a", ".mcp-exec2/a")
    folders = (("artifacts/", b"", tarfile.DIRTYPE), *((name, b"2", tarfile.REGTYPE) for name in names))
    assert (await client.put_tar(ME, "data", make_tar(*folders))).files == 5


async def test_the_last_ten_versions_are_kept(client: FilesClient) -> None:
    for number in range(13):
        await client.put_file(ME, "data", "a", b"%d" % number)
    kept = [item.version for item in (await client.list_versions(ME, "data")).items]
    assert kept == list(range(13, 3, -1))
    assert await read(client, ME, "data", "a", version=4) == b"3"
    assert await refused(read(client, ME, "data", "a", version=3)) is FilesReason.NO_VERSION
    assert await refused(client.restore(ME, "data", 3)) is FilesReason.NO_VERSION


async def test_archives_go_in_and_out(client: FilesClient, sandbox: FakeSandbox) -> None:
    large = bytes(range(251)) * 4000
    archive = make_tar(
        ("dir/", b"", tarfile.DIRTYPE),
        ("dir/" + "long" * 40 + "ü", b"name", tarfile.REGTYPE),
        *((f"same-{number}", large, tarfile.REGTYPE) for number in range(2)),
        ("empty", b"", tarfile.REGTYPE),
    )
    assert (await client.put_tar(ME, "data", archive)).files == 4
    async with client.open_tar(ME, "data") as stream:
        out = b"".join([chunk async for chunk in stream.chunks])
    with tarfile.open(fileobj=io.BytesIO(out)) as found:
        contents = {member.name: found.extractfile(member).read() for member in found}  # type: ignore[union-attr]
    assert contents == {"dir/" + "long" * 40 + "ü": b"name", "same-0": large, "same-1": large, "empty": b""}
    assert (await sandbox.fetch())[1] == contents
    assert (await client.put_tar(ME, "data", make_tar(("one", b"1", tarfile.REGTYPE)), replace=True)).files == 1
    for hostile in (
        make_tar(("../a", b"x", tarfile.REGTYPE)),
        make_tar(("link", b"", tarfile.SYMTYPE)),
        make_tar(("a", b"x", tarfile.REGTYPE), ("a", b"y", tarfile.REGTYPE)),
        make_tar(*((f"f{number}", b"", tarfile.REGTYPE) for number in range(51))),
        archive[:-12_000],
        b"\x1f\x8b compressed",
    ):
        assert await refused(client.put_tar(ME, "data", hostile)) in (FilesReason.INVALID, FilesReason.TOO_LARGE)
    assert (await client.get_workspace(ME, "data")).version == 2


async def test_an_archive_is_refused_once_its_paths_have_too_many_bytes(
    client: FilesClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_exec_broker.features.files.workspace.commit.MAX_PATHS_BYTES", 1000)
    wide = "\N{GRINNING FACE}" * 60
    await client.put_tar(ME, "data", make_tar(*((f"{wide}{number}", b"", tarfile.REGTYPE) for number in range(4))))
    entries = [(f"{wide}{number}", b"", tarfile.REGTYPE) for number in range(5)]
    archive = make_tar(*entries, ("link", b"", tarfile.SYMTYPE))
    assert await refused(client.put_tar(ME, "data", archive)) is FilesReason.TOO_LARGE, "before the link is read"


async def test_requests_wait_for_the_memory_of_the_versions_that_they_read(
    client: FilesClient, sandbox: FakeSandbox, files: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.put_tar(ME, "data", make_tar(("a", b"1", tarfile.REGTYPE)))
    await client.put_tar(ME, "data", make_tar(("b", b"2", tarfile.REGTYPE)))
    monkeypatch.setattr("mcp_exec_broker.features.files.workspace.versions.estimate_memory", lambda size: 10**9)
    versions = find_store(files).versions
    for request in (
        lambda: client.list_files(ME, "data", version=1),
        lambda: client.open_file(ME, "data", "a", version=1).__aenter__(),
        lambda: client.open_tar(ME, "data").__aenter__(),
        lambda: client.put_file(ME, "data", "c", b"3"),
        lambda: client.delete_files(ME, "data", "a"),
        lambda: client.restore(ME, "data", 1),
    ):
        versions._cache.clear()  # noqa: SLF001
        assert await refused(request()) is FilesReason.BUSY
    for method, path in (("GET", MANIFEST_PATH), ("POST", MISSING_PATH)):
        status, answer = await sandbox.send(method, path, json.dumps({"sha256": []}) if method == "POST" else None)
        assert (status, json.loads(answer)["reason"]) == (429, FilesReason.BUSY)


async def test_artifacts_are_stored_once_and_within_their_limits(sandbox: FakeSandbox, client: FilesClient) -> None:
    def body(content: bytes, **changes: Any) -> bytes:
        head = {"name": "plot ü.png", "mediaType": "image/png", "size": len(content), "sha256": digest(content)}
        return json.dumps(head | changes).encode() + b"\n" + content

    first = (await sandbox.ask("POST", ARTIFACTS_PATH, body(b"image")))["id"]
    assert (await sandbox.ask("POST", ARTIFACTS_PATH, body(b"image")))["id"] == first
    async with client.open_artifact(ME, "uid-1", first) as stream:
        assert b"".join([chunk async for chunk in stream.chunks]) == b"image"
        assert (stream.name, stream.media_type, stream.size) == ("plot ü.png", "image/png", 5)
    for wrong in (
        body(b"image", sha256=digest(b"other")),
        body(b"image", name="a\r\nSet-Cookie: x"),
        body(b"image", name="../a"),
        body(b"image", mediaType="text/html; x"),
        body(b"image", size=4),
        b"{}\n",
        b"[" * 9000,
    ):
        assert (await sandbox.send("POST", ARTIFACTS_PATH, wrong))[0] == 400
    assert (await sandbox.send("POST", ARTIFACTS_PATH, body(b"x" * 10_001)))[0] == 413
    for number in range(2):
        await sandbox.ask("POST", ARTIFACTS_PATH, body(b"%d" % number))
    assert (await sandbox.send("POST", ARTIFACTS_PATH, body(b"one more")))[0] == 413
    for owner, execution, id in ((YOU, "uid-1", first), (ME, "uid-2", first), (ME, "uid-1", "0" * 16)):
        with pytest.raises(FilesError) as caught:
            async with client.open_artifact(owner, execution, id):
                pass
        assert caught.value.reason is FilesReason.NO_ARTIFACT


async def test_the_artifacts_of_one_execution_are_deleted(files: World, client: FilesClient) -> None:
    head = {"name": "plot.png", "mediaType": "image/png", "size": 3, "sha256": digest(b"png")}
    body = json.dumps(head).encode() + b"\npng"
    runs = {uid: FakeSandbox(files, files_grant(owner=ME.digest, execution=uid)) for uid in ("uid-1", "uid-2")}
    ids = {uid: (await run.ask("POST", ARTIFACTS_PATH, body))["id"] for uid, run in runs.items()}
    await client.delete_artifacts(YOU, "uid-1")
    async with client.open_artifact(ME, "uid-1", ids["uid-1"]):
        pass
    for _ in range(2):
        await client.delete_artifacts(ME, "uid-1")
    with pytest.raises(FilesError) as caught:
        async with client.open_artifact(ME, "uid-1", ids["uid-1"]):
            pass
    assert caught.value.reason is FilesReason.NO_ARTIFACT
    async with client.open_artifact(ME, "uid-2", ids["uid-2"]) as stream:
        assert b"".join([chunk async for chunk in stream.chunks]) == b"png"


async def test_an_execution_that_has_ended_writes_nothing_more(files: World, sandbox: FakeSandbox) -> None:
    await sandbox.manifest()
    await files.ask("DELETE", "/v1/executions/uid-1")
    status, body = await sandbox.send("POST", BLOBS_PATH, frames(b"x"))
    assert (status, json.loads(body)["message"]) == (403, "the execution has ended")


async def test_uploads_of_a_run_without_tools_are_forgotten_at_its_end(files: World) -> None:
    sandbox = FakeSandbox(files, files_grant())
    await sandbox.manifest()
    await sandbox.ask("POST", BLOBS_PATH, frames(b"x"))
    pending = find_store(files).pending
    assert pending.count() == 1
    await files.ask("DELETE", "/v1/executions/uid-1/files")
    assert pending.count() == 0
    status, body = await sandbox.send("POST", BLOBS_PATH, frames(b"x"))
    assert (status, json.loads(body)["message"]) == (403, "the execution has ended")


@pytest.mark.parametrize("kind", ["volume", "s3"])
async def test_a_restart_keeps_what_was_committed(
    kind: str, api: FakeApiServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    settings = settings_of(kind, tmp_path, request)
    async with running(api, tmp_path, **settings) as world:
        sandbox = FakeSandbox(world, files_grant())
        await sandbox.save({"a": b"kept"})
        await sandbox.ask("POST", BLOBS_PATH, frames(b"pending"))
    async with running(api, tmp_path, **settings) as world:
        sandbox = FakeSandbox(world, files_grant())
        head, found = await sandbox.fetch()
        assert (head["version"], found) == (1, {"a": b"kept"})
        assert (await sandbox.save({"a": b"pending"}))["version"] == 2


async def test_a_store_that_fails_is_reported_without_its_addresses(
    api: FakeApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(api, tmp_path, files_folder=tmp_path / "files") as world:
        sandbox = FakeSandbox(world, files_grant())
        await sandbox.save({"a": b"1"})
        manifest = next((tmp_path / "files/data/agents" / OWNER).glob("*/versions/*"))
        manifest.write_bytes(manifest.read_bytes()[:-100])
        find_store(world).versions._cache.clear()  # noqa: SLF001
        status, body = await sandbox.send("GET", MANIFEST_PATH)
        assert (status, json.loads(body)["reason"]) == (503, "Unavailable")
        assert OWNER not in body.decode()
        assert any("damaged" in record.getMessage() for record in caplog.records)


async def test_a_broker_without_a_store_says_so(world: World) -> None:
    assert (await FakeSandbox(world, files_grant()).send("GET", MANIFEST_PATH))[0] == 404
    assert await refused(files_client(world).list_workspaces(ME)) is FilesReason.DISABLED
