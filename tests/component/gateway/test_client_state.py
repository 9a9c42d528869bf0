"""What lasts, through the client and on the command line, at a gateway with a broker: sessions, files, artifacts."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from tests.component.gateway.commands import Command, Ended, call
from tests.component.gateway.conftest import KEY, Gateway
from tests.component.gateway.test_artifacts import PNG, produce
from tests.component.gateway.test_sessions import create
from tests.support.api_server import FakeApiServer
from tests.support.broker import FakeBroker
from tests.support.processes import write_kubeconfig

from mcp_exec_api.constants import SESSIONS
from mcp_exec_api.files import Owner
from mcp_exec_client import AsyncClient, Client
from mcp_exec_client.cli.main import kubectl_main
from mcp_exec_client.errors import NotFound, Outdated
from mcp_exec_common.kube.client import custom_resource_path

OWNER = Owner(namespace="agents", caller="team-a").digest
SBS = custom_resource_path(SESSIONS, namespace="agents")


@pytest.fixture
def gateway(gateway_with_broker: Gateway) -> Gateway:
    return gateway_with_broker


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(gateway.url, api_key=KEY) as made:
        yield made


def fill(folder: Path, **contents: str) -> Path:
    """Write files, with `_` for `/` in their names."""
    for name, content in contents.items():
        path = folder / name.replace("_", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


async def test_a_folder_s_changed_files_alone_travel_as_one_version(
    client: AsyncClient, broker: FakeBroker, tmp_path: Path
) -> None:
    folder = fill(tmp_path / "in", a="1", b_c="2", b_d="3", __pycache___x="no")
    os.symlink("/etc/passwd", folder / "link")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    first = await client.files.sync("w", folder)
    assert (first.uploaded, first.unchanged, first.version) == (("a", "b/c", "b/d", "run.sh"), 0, 1)
    assert sorted(broker.files.workspaces[OWNER, "w"].files) == ["a", "b/c", "b/d", "run.sh"]
    asked = len(broker.asked)
    assert (await client.files.sync("w", folder)).unchanged == 4
    assert [path for path, _ in broker.asked[asked:]] == ["/v1/workspaces/w/files"] * 2
    fill(folder, b_c="two")
    (folder / "a").unlink()
    second = await client.files.sync("w", folder, delete=True)
    assert (second.uploaded, second.deleted, second.unchanged, second.version) == (("b/c",), ("a",), 2, 2)
    pulled = await client.files.pull("w", fill(tmp_path / "out", b_d="3", mine="kept"))
    assert (pulled.downloaded, pulled.unchanged) == (("b/c", "run.sh"), 1)
    assert ((tmp_path / "out/b/c").read_text(), (tmp_path / "out/mine").read_text()) == ("two", "kept")
    with pytest.raises(NotFound):
        await client.files.pull("gone", tmp_path / "none")


async def test_files_of_a_workspace_never_leave_the_local_folder(
    client: AsyncClient, broker: FakeBroker, tmp_path: Path
) -> None:
    await client.files.write("w", "a", "1")
    outside, folder = tmp_path / "outside", tmp_path / "in"
    for each in (outside, folder):
        each.mkdir()
    versions = broker.files.workspaces[OWNER, "w"].versions
    for hostile in ("../outside/x", "/etc/x", "b/../../outside/x"):
        versions.append({hostile: b"evil"})
        with pytest.raises(ValueError, match="path"):
            await client.files.pull("w", folder)
    os.symlink(outside, folder / "link")
    versions.append({"link/x": b"evil"})
    with pytest.raises(ValueError, match="is a link"):
        await client.files.pull("w", folder)
    assert os.listdir(outside) == []


async def test_files_that_are_one_for_the_local_folder_never_overwrite_each_other(
    client: AsyncClient, broker: FakeBroker, tmp_path: Path
) -> None:
    for path, text in (("Ä", "1"), ("ä", "2")):
        await client.files.write("w", path, text)
    assert (await client.files.pull("w", tmp_path / "distinct")).downloaded == ("ä", "Ä")
    folder = fill(tmp_path / "ignoring case", Ä="2")
    os.link(folder / "Ä", folder / "ä")  # as a file system that ignores case and forms of letters shows them
    with pytest.raises(ValueError, match="are one file"):
        await client.files.pull("w", folder)


async def test_what_programs_of_the_user_would_execute_is_left_out_of_a_local_folder(
    client: AsyncClient, broker: FakeBroker, tmp_path: Path
) -> None:
    folder = fill(tmp_path / "in", a="1")
    await client.files.sync("w", folder)
    hostile = (".git/hooks/pre-commit", ".GIT/config", "sub/.git./config", ".g\u200cit/config", ".venv/bin/python")
    broker.files.workspaces[OWNER, "w"].versions.append({"a": b"1", **dict.fromkeys(hostile, b"evil")})
    pulled = await client.files.pull("w", folder)
    assert (pulled.downloaded, pulled.unchanged, sorted(pulled.left_out)) == ((), 1, sorted(hostile))
    assert os.listdir(folder) == ["a"]
    kept = await client.files.sync("w", fill(folder, a="2"), delete=True)
    assert (kept.uploaded, kept.deleted) == (("a",), ())
    everything = await client.files.pull("w", folder, exclude=())
    assert sorted(everything.downloaded) == sorted(hostile)


REPOSITORY = {
    "HEAD": b"ref: refs/heads/main\n",
    "config": b'[core]\nrepositoryformatversion = 0\nbare = false\nworktree = .\nfsmonitor = "touch %s; false"\n',
    "objects/keep": b"",
    "refs/keep": b"",
}
"""An embedded bare repository: no `.git`, and a command in its configuration."""


@pytest.mark.parametrize(
    "parts", [("HEAD", "config"), ("config", "objects/keep"), ("HEAD", "objects/keep", "refs/keep")]
)
async def test_git_executes_nothing_of_a_folder_that_code_wrote(
    client: AsyncClient, broker: FakeBroker, tmp_path: Path, parts: tuple[str, ...]
) -> None:
    mark, folder = tmp_path / "executed", tmp_path / "in"
    files = {f"report/{name}": text.replace(b"%s", os.fsencode(mark)) for name, text in REPOSITORY.items()}
    await client.files.write("w", "a", "1")
    versions = broker.files.workspaces[OWNER, "w"].versions
    versions.append({"a": b"1", **{f"report/{name}": files[f"report/{name}"] for name in parts}})
    await client.files.pull("w", folder)
    versions.append({"a": b"1", **files})
    pulled = await client.files.pull("w", folder)
    assert "report/HEAD" in pulled.left_out
    (folder / "report").mkdir(exist_ok=True)
    environment = {**os.environ, "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(tmp_path)}
    status = await asyncio.create_subprocess_exec("git", "status", cwd=folder / "report", env=environment)
    await asyncio.wait_for(status.wait(), 20)
    assert not mark.exists()
    kept = await client.files.sync("w", folder, delete=True)
    assert kept.deleted == ()
    assert sorted((await client.files.pull("w", folder, exclude=())).downloaded)[0] == "report/HEAD"
    status = await asyncio.create_subprocess_exec("git", "status", cwd=folder / "report", env=environment)
    await asyncio.wait_for(status.wait(), 20)
    assert mark.exists(), "the attack works without the measure"


@pytest.mark.parametrize(
    "path",
    ["a.pth", "sub/CONFTEST.py", ".envrc", ".vscode/tasks.json", ".mcp.json", "sub/head", ".hg/hgrc", "x.desktop"],
)
async def test_what_programs_execute_because_it_is_there_is_left_out(
    client: AsyncClient, broker: FakeBroker, tmp_path: Path, path: str
) -> None:
    await client.files.write("w", path, "evil")
    await client.files.write("w", "headlines.csv", "1")
    pulled = await client.files.pull("w", tmp_path / "in")
    assert (pulled.downloaded, pulled.left_out) == (("headlines.csv",), (path,))


async def test_a_synchronization_sees_what_others_save_meanwhile_and_deletes_none_of_it_unseen(
    client: AsyncClient, broker: FakeBroker, tmp_path: Path
) -> None:
    folder = fill(tmp_path, a="1")
    assert (await client.files.sync("w", folder)).version == 1
    versions = broker.files.workspaces[OWNER, "w"].versions
    fill(folder, a="2")
    others = iter([{"a": b"1", "theirs": b"t"}])

    def save_once() -> None:
        if found := next(others, None):
            versions.append(found)

    broker.files.before_change = save_once
    done = await client.files.sync("w", folder, delete=True)
    assert (done.uploaded, done.deleted, done.version, versions[-1]) == (("a",), ("theirs",), 3, {"a": b"2"})
    fill(folder, a="3")
    broker.files.before_change = lambda: versions.append({"a": b"other %d" % len(versions)})
    with pytest.raises(Outdated):
        await client.files.sync("w", folder)


async def test_a_lock_whose_answer_was_lost_says_that_it_may_be_the_caller_s_own() -> None:
    """The first request is read and its connection closed; the second finds the file."""
    requests = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        requests += 1
        await reader.readuntil(b"\r\n\r\n")
        if requests > 1:
            problem = json.dumps(
                {"type": "urn:mcp-exec:problem:outdated", "status": 412, "detail": "it exists"}
            ).encode()
            head = "HTTP/1.1 412 Precondition Failed\r\nContent-Type: application/problem+json\r\n"
            writer.write(f"{head}Content-Length: {len(problem)}\r\n\r\n".encode() + problem)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with AsyncClient(address, api_key=KEY) as client:
            with pytest.raises(Outdated, match="an earlier attempt was not answered"):
                await client.files.write("w", "lock", b"x", must_be_new=True)
            with pytest.raises(Outdated) as caught:
                await client.files.write("w", "lock", b"x", must_be_new=True)
    assert (requests, "earlier attempt" in str(caught.value)) == (3, False)


async def test_a_write_of_the_client_is_refused_if_others_were_first(client: AsyncClient, tmp_path: Path) -> None:
    first = await client.files.write("w", "a", "1", must_be_new=True)
    with pytest.raises(Outdated, match="412 outdated"):
        await client.files.write("w", "a", "2", must_be_new=True)
    second = await client.files.write("w", "a", "2", if_match=first.etag)
    assert second.version == 2
    for outdated in (
        client.files.write("w", "a", "3", if_match=first.etag),
        client.files.delete("w", "a", if_match=first.etag),
        client.workspaces.load_archive("w", __file__, if_match=first.etag),
    ):
        with pytest.raises(Outdated):
            await outdated
    assert (await client.workspaces.get("w")).etag == second.etag
    assert (await client.files.delete("w", "a", if_match=second.etag)).version == 3


async def test_the_blocking_client_has_sessions_files_and_artifacts(
    gateway: Gateway, broker: FakeBroker, tmp_path: Path
) -> None:
    await create(gateway, "kept")
    name = await produce(gateway, broker, ("plot.png", "image/png", PNG))

    def use() -> list[object]:
        with Client(gateway.url, api_key=KEY) as client:
            found = client.get(name)
            saved = found.artifacts[0].save(tmp_path)
            client.files.write("w", "a.txt", "text")
            with client.session("kept") as session:
                state = session.get()
            paths = [file.path for file in client.files.list("w")]
            sizes = [each.bytes for each in client.workspaces.list()]
            listed = client.artifacts.list(name)[0].read()
            return [found.artifacts[0].read(), saved.read_bytes(), listed, paths, sizes, state.phase]

    assert await asyncio.to_thread(use) == [PNG, PNG, PNG, ["a.txt"], [4], "Pending"]


async def test_sessions_on_the_command_line(gateway: Gateway, command: Command) -> None:
    gateway.finish_all()
    await create(gateway, "analysis", description="Sales")
    listed = await command("sessions", "list", "-o", "wide")
    assert listed.lines[0].split()[:4] == ["NAME", "PHASE", "REASON", "POOL"]
    assert "analysis" in listed.lines[1]
    assert yaml.safe_load((await command("sessions", "get", "analysis", "-o", "yaml")).out)["name"] == "analysis"
    assert (await command("sessions", "list", "-o", "name")).out == "analysis\n"
    assert (await command("sessions", "reset", "analysis")).out == "analysis starts afresh\n"
    completed = await command("__complete", "run", "--session", "an")
    assert completed.out.startswith("analysis\t")
    assert (await command("__complete", "sessions", "get", "")).out.startswith("analysis\t")
    assert (await command("run", "--session", "analysis", "--workspace", "w:ro", "-c", "1", "-o", "name")).code == 0
    (stored,) = gateway.executions.values()
    assert (stored["spec"]["session"], stored["spec"]["workspace"]) == ("analysis", {"name": "w", "mode": "Read"})
    assert (await command("run", "--workspace", "w:x", "-c", "1")).code == 2
    assert (await command("sessions", "delete", "analysis")).out == "analysis is deleted\n"
    refused = await command("sessions", "get", "analysis")
    assert (refused.code, "has no session analysis" in refused.last) == (3, True)


async def test_workspaces_on_the_command_line(command: Command, tmp_path: Path) -> None:
    folder = fill(tmp_path / "in", a_txt="one", b_txt="2")
    sync = await command("workspace", "sync", "w", folder)
    assert sync.lines == ["sent a/txt", "sent b/txt", "0 files unchanged; version 1 of w"]
    again = json.loads((await command("workspace", "sync", "w", folder, "-o", "json")).out)
    assert (again["uploaded"], again["unchanged"]) == ([], 2)
    assert (await command("workspace", "put", "w", folder / "a/txt", "--path", "c")).last == ""
    assert (await command("workspace", "list", "w", "-o", "name")).lines == ["a/txt", "b/txt", "c"]
    assert "w" in (await command("workspace", "list")).lines[1]
    assert (await command("workspace", "get", "w", "-f", "c", "-")).out == "one"
    got = await command("workspace", "get", "w", tmp_path / "out", "--version", "1")
    assert got.lines[-1] == "0 files unchanged; version 1 of w"
    assert sorted(os.listdir(tmp_path / "out")) == ["a", "b"]
    assert (await command("workspace", "rm", "w", "-f", "c")).out == "c is deleted in version 3 of w\n"
    assert [line.split()[0] for line in (await command("workspace", "versions", "w")).lines] == [
        "VERSION",
        "3",
        "2",
        "1",
    ]
    restored = await command("workspace", "restore", "w", "2")
    assert restored.out == "version 4 of w has the files of version 2\n"
    assert (await command("workspace", "rm", "w")).out == "w is deleted\n"
    for arguments, code in (
        (("get", "w", "-"), 2),
        (("get", "w", tmp_path / "o2"), 3),
        (("sync", "w", tmp_path / "none"), 2),
        (("put", "w", tmp_path / "none"), 2),
        (("put", "w", folder / "a/txt", "--path", "../x"), 3),
        (("list", "--version", "1"), 2),
    ):
        ended = await command("workspace", *arguments)
        assert (ended.code, len(ended.err.splitlines())) == (code, 1), (arguments, ended)


async def test_artifacts_on_the_command_line(
    gateway: Gateway, broker: FakeBroker, command: Command, tmp_path: Path
) -> None:
    name = await produce(gateway, broker, ("plot.png", "image/png", PNG), ("../x\x1b.csv", "text/csv", b"a"))
    listed = await command("artifacts", "list", name)
    assert [line.split()[:3] for line in listed.lines[1:]] == [
        ["a0", "plot.png", "image/png"],
        ["a1", "../x\\x1b.csv", "text/csv"],
    ]
    links = [line.split()[-1] for line in (await command("artifacts", "list", name, "-o", "wide")).lines[1:]]
    assert [len(link) > 120 and not link.endswith("…") for link in links] == [True, True]
    saved = await command("artifacts", "get", name, "--to", tmp_path / "all")
    assert sorted(os.listdir(tmp_path / "all")) == ["plot.png", "x_.csv"]
    assert len(saved.lines) == 2
    assert (await command("artifacts", "get", name, "plot.png", "--to", tmp_path)).out == f"{tmp_path}/plot.png\n"
    assert (await command("artifacts", "get", name, "gone", "--to", tmp_path)).code == 3


async def test_the_plugin_of_kubectl_has_sessions_and_says_what_needs_a_gateway(
    api: FakeApiServer, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path / "kubeconfig", api.url)))
    api.users["a-token"] = "ann@example.com"
    owner = Owner(namespace="agents", caller="k8s/ann@example.com", user="ann")
    for item, spec in (("plain", {}), (owner.qualify("analysis"), {"name": "analysis", "user": "ann"})):
        status = {"phase": "Ready", "executions": 3, "memoryBytes": 2**20}
        api.put(SBS, {"metadata": {"name": item}, "spec": spec, "status": status})

    async def run(*arguments: object) -> Ended:
        return await call(capsys, *arguments, "-n", "agents", entry=kubectl_main)

    assert (await run("sessions", "list", "-o", "name")).lines == sorted([owner.qualify("analysis"), "plain"])
    got = json.loads((await run("sessions", "get", "analysis", "--user", "ann", "-o", "json")).out)
    assert (got["phase"], got["executions"], got["user"]) == ("Ready", 3, "ann")
    assert (await run("sessions", "reset", "plain")).code == 0
    assert api.collections[SBS]["plain"]["spec"]["resets"] == 1
    assert (await run("sessions", "delete", "plain")).code == 0
    assert (await run("sessions", "delete", "plain")).code == 3
    for arguments in (("workspace", "list"), ("artifacts", "list", "e")):
        ended = await run(*arguments)
        assert ended.code == 2
        assert f"{arguments[0]} needs --gateway, $MCP_EXEC_GATEWAY or a profile" in ended.last
