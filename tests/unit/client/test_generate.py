"""`mcp-exec servers generate`."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from mcp_exec_client.__main__ import main

ROOT = Path(__file__).parents[3]
TOOLS = [
    {
        "name": "add-note",
        "description": "Adds a note.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
    {"name": "listNotes", "inputSchema": {"type": "object"}},
]
CONTEXT7 = json.loads((ROOT / "servers" / "catalogs" / "context7.json").read_text())
GATEWAY: dict[str, tuple[Any, int]] = {
    "/api/v1/mcp/servers/notes/tools": (
        {"server": "notes", "tools": [{**TOOLS[0], "inferred": True, "outputSchema": {"type": "integer"}}, TOOLS[1]]},
        200,
    ),
    "/api/v1/mcp/servers/context7/tools": (CONTEXT7, 200),
    "/api/v1/mcp/servers/broken/tools": (["none"], 200),
}


def generate(*arguments: str | Path) -> None:
    main(["servers", "generate", *map(str, arguments)])


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    with pytest.raises(SystemExit) as ended:
        generate(*arguments)
    return f"{ended.value.code}{capsys.readouterr().err}"


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    path = tmp_path / "notes.json"
    path.write_text(json.dumps({"tools": TOOLS}))
    return path


def test_wrappers_and_stubs_are_written(catalog: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "servers"
    generate("--from-file", catalog, "--out", out)
    assert {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()} == {
        "__init__.py",
        "notes/__init__.py",
        "notes/__init__.pyi",
        "notes/add_note.py",
        "notes/add_note.pyi",
        "notes/list_notes.py",
        "notes/list_notes.pyi",
    }
    assert "2 tools of 1 servers, 7 files changed" in capsys.readouterr().out
    assert (out / "notes" / "add_note.py").stat().st_mode & 0o777 == 0o644
    generate("--from-file", catalog, "--out", out, "--check")


def test_stubs_can_be_left_out_and_a_server_named(catalog: Path, tmp_path: Path) -> None:
    generate("--from-file", catalog, "--out", tmp_path / "out", "--no-stubs", "--name", "my-notes")
    assert "my-notes.add-note" in (tmp_path / "out" / "my_notes" / "add_note.py").read_text()
    assert not list((tmp_path / "out").rglob("*.pyi"))


def test_files_of_tools_that_are_gone_go_and_files_of_people_stay(
    catalog: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "servers"
    generate("--from-file", catalog, "--out", out)
    (out / "notes" / "mine.py").write_text("# by hand\n")
    catalog.write_text(json.dumps({"tools": TOOLS[:1]}))
    assert "notes/list_notes.py" in refusal(capsys, "--from-file", catalog, "--out", out, "--check")
    assert (out / "notes" / "list_notes.py").exists()
    generate("--from-file", catalog, "--out", out)
    assert sorted(path.name for path in (out / "notes").iterdir()) == [
        "__init__.py",
        "__init__.pyi",
        "add_note.py",
        "add_note.pyi",
        "mine.py",
    ]


def test_a_file_written_by_hand_is_not_overwritten(
    catalog: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out" / "notes").mkdir(parents=True)
    (tmp_path / "out" / "notes" / "add_note.py").write_text("print('mine')\n")
    assert "was not generated" in refusal(capsys, "--from-file", catalog, "--out", tmp_path / "out")
    assert (tmp_path / "out" / "notes" / "add_note.py").read_text() == "print('mine')\n"
    assert not (tmp_path / "out" / "notes" / "list_notes.py").exists()


def test_nothing_is_written_through_a_link_that_leads_out(
    catalog: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes").symlink_to(tmp_path / "elsewhere")
    assert "is not in" in refusal(capsys, "--from-file", catalog, "--out", tmp_path / "out")
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not valid JSON"),
        ("[" * 100_000, "is not valid JSON"),
        ('{"tools": 5}', "has no list of tools"),
        ('{"tools": [{"description": "x"}]}', "has no name"),
        ('{"server": "../x", "tools": []}', "is not a server name"),
    ],
)
def test_a_file_that_is_no_catalog_is_refused(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.json").write_text(text)
    assert said in refusal(capsys, "--from-file", tmp_path / "bad.json", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from-file", "x", "--from-url", "y"], "not allowed with"),
        ([], "one of the arguments"),
        (["--from-file", "absent.json"], "absent.json"),
        (["--from-file", "x", "--nam", "y"], "unrecognized arguments"),
        (["--from-file", "x", "--env", "HOME"], "is allowed only with --from-command"),
        (["--from-command", "x"], "needs --name"),
        (["--from-command", "'", "--name", "x"], "is not a valid command"),
        (["--from-url", "ftp://x", "--name", "x"], "is not the address"),
        (["--from-url", "http://127.0.0.1:1"], "--name is needed"),
        (["--from-url", "http://127.0.0.1:1/mcp", "--name", "x", "--timeout", "5"], "http://127.0.0.1:1/mcp: "),
        (["--from-url", "http://a.example", "--header-env", "A"], "it must be NAME=VARIABLE"),
        (["--from-url", "http://a.example", "--header-env", "A=NO_SUCH_VARIABLE"], "NO_SUCH_VARIABLE is not set"),
        (["--from-toolserver", "x"], "needs --gateway"),
        (["--from-toolserver", "x", "--name", "y", "--gateway", "z"], "is not allowed with --from-toolserver"),
    ],
)
def test_options_that_cannot_be_used_are_refused_with_the_reason(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MCP_EXEC_GATEWAY", raising=False)
    assert said in refusal(capsys, *arguments)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def answers() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve a gateway for GET and an MCP server with two pages of tools for POST; yield address and requests."""
    seen: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

        def answer(self, data: Any, status: int = 200) -> None:
            body = json.dumps(data).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            seen.append({"path": self.path, "authorization": self.headers.get("Authorization")})
            if not self.path.startswith("/api/"):
                return self.answer({"error": "no stream"}, 405)
            missing = ({"detail": "servers with tools: context7, notes"}, 404)
            return self.answer(*GATEWAY.get(self.path, missing))

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            method, parameters = request["method"], request.get("params", {})
            seen.append({"method": method, "authorization": self.headers.get("Authorization")})
            if "id" not in request:
                self.send_response(202)
                self.send_header("Content-Length", "0")
                return self.end_headers()
            if method == "initialize":
                result: dict[str, Any] = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "notes", "version": "1"},
                }
            elif method == "tools/list":
                second = parameters.get("cursor") == "2"
                result = {"tools": [TOOLS[1]]} if second else {"tools": [TOOLS[0]], "nextCursor": "2"}
            else:
                error = {"code": -32601, "message": "no such method"}
                return self.answer({"jsonrpc": "2.0", "id": request["id"], "error": error})
            return self.answer({"jsonrpc": "2.0", "id": request["id"], "result": result})

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", seen
    server.shutdown()
    thread.join(10)
    server.server_close()


def test_a_live_server_lists_all_pages_of_its_tools(
    answers: tuple[str, list[dict[str, Any]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, seen = answers
    monkeypatch.setenv("NOTES_AUTHORIZATION", "Bearer of-the-test")
    generate(
        "--from-url", f"{address}/mcp", "--name", "notes", "--out", tmp_path,
        "--header-env", "Authorization=NOTES_AUTHORIZATION",
    )  # fmt: skip
    assert (tmp_path / "notes" / "add_note.py").exists()
    assert (tmp_path / "notes" / "list_notes.py").exists()
    assert {each["authorization"] for each in seen} == {"Bearer of-the-test"}


def test_a_gateway_returns_the_catalog_of_a_toolserver(
    answers: tuple[str, list[dict[str, Any]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address, seen = answers
    generate("--from-toolserver", "notes", "--gateway", address + "/", "--api-key", "k", "--out", tmp_path)
    assert seen == [{"path": "/api/v1/mcp/servers/notes/tools", "authorization": "Bearer k"}]
    added, listed = ((tmp_path / "notes" / name).read_text() for name in ("add_note.py", "list_notes.py"))
    assert '"notes.add-note"' in added
    assert "inferred from earlier results" in added
    assert '"notes.listNotes"' in listed
    said = refusal(capsys, "--from-toolserver", "a/b", "--gateway", address, "--out", tmp_path)
    assert "servers with tools: context7, notes" in said
    assert seen[-1]["path"] == "/api/v1/mcp/servers/a%2Fb/tools"
    assert "no list of tools" in refusal(capsys, "--from-toolserver", "broken", "--gateway", address, "--out", tmp_path)


def test_a_gateways_catalog_gives_the_same_wrappers_as_the_servers_own(
    answers: tuple[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    generate("--from-toolserver", "context7", "--gateway", answers[0], "--out", tmp_path)
    written = {path.name: path.read_text() for path in (tmp_path / "context7").iterdir()}
    generate("--from-file", ROOT / "servers" / "catalogs" / "context7.json", "--out", tmp_path / "file")
    assert written == {path.name: path.read_text() for path in (tmp_path / "file" / "context7").iterdir()}


def test_typescript_is_written_beside_python_and_other_servers(catalog: Path, tmp_path: Path) -> None:
    out = tmp_path / "servers"
    generate("--from-file", catalog, "--out", out)
    before = {path: path.read_text() for path in out.rglob("*.py*")}
    generate("--from-file", catalog, "--out", out, "--language", "typescript")
    generate("--from-file", ROOT / "servers" / "catalogs" / "context7.json", "--out", out, "--language", "typescript")
    assert {path: path.read_text() for path in out.rglob("*.py*")} == before
    assert {path.name for path in (out / "notes").iterdir()} >= {
        "mod.js",
        "mod.d.ts",
        "add_note.d.ts",
        "list_notes.d.ts",
    }
    assert 'export * as notes from "./notes/mod.js";' in (out / "mod.js").read_text()
    assert 'export * as context7 from "./context7/mod.d.ts";' in (out / "mod.d.ts").read_text()
    catalog.write_text(json.dumps({"tools": TOOLS[:1]}))
    generate("--from-file", catalog, "--out", out, "--language", "typescript")
    assert not (out / "notes" / "list_notes.d.ts").exists()
    assert (out / "notes" / "list_notes.py").exists()
    generate("--from-file", catalog, "--out", out, "--language", "typescript", "--check")
