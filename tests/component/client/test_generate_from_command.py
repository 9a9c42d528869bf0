"""`mcp-exec servers generate --from-command`."""

import json
import sys
from pathlib import Path

import pytest

from mcp_exec_client.__main__ import main


def generate(*arguments: str | Path) -> None:
    main(["servers", "generate", *map(str, arguments)])


def test_a_server_that_is_started_here_lists_its_tools(tmp_path: Path) -> None:
    command = f"{sys.executable} -m mcp_server_time --local-timezone UTC"
    generate("--from-command", command, "--name", "time", "--out", tmp_path, "--env", "PATH")
    assert "time.get_current_time" in (tmp_path / "time" / "get_current_time.py").read_text()


def test_a_command_that_does_not_exist_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        generate("--from-command", "no-such-program-here", "--name", "x")
    assert "no-such-program-here" in f"{ended.value.code}{capsys.readouterr().err}"
    assert not list(tmp_path.iterdir())


SERVER = """
import json, sys
pages = json.loads(sys.argv[1])
listed = 0
for line in sys.stdin:
    message = json.loads(line)
    method, result = message.get("method"), None
    if method == "initialize":
        info = {"name": "paged", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list":
        names, cursor = pages[min(listed, len(pages) - 1)]
        listed += 1
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
        result = {"tools": tools, **({} if cursor is None else {"nextCursor": cursor})}
    if "id" in message:
        outcome = {"error": {"code": -32601, "message": "unknown"}} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)
"""
PAGES: list[tuple[list[tuple[str, str | None]], str]] = [
    ([("ab", ""), ("c", None)], ""),
    ([("ab", "x"), ("c", "x")], "repeats a page; 3 tools are read"),
    ([("abc", "x"), ("abc", "x")], "repeats a page; 3 tools are read"),
    ([("abc", ""), ("abc", "")], ""),
]


@pytest.mark.parametrize(("pages", "warning"), PAGES)
def test_the_tools_of_all_pages_are_generated_and_pages_that_are_not_read_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pages: list[tuple[str, str | None]], warning: str
) -> None:
    program = tmp_path / "paged.py"
    program.write_text(SERVER)
    command = f"{sys.executable} {program} '{json.dumps(pages)}'"
    generate("--from-command", command, "--name", "paged", "--out", tmp_path / "out")
    shown = capsys.readouterr()
    assert {path.stem for path in (tmp_path / "out" / "paged").glob("?.py")} == set("abc")
    assert "3 tools of 1 servers" in shown.out
    assert (warning in shown.err) if warning else (shown.err == "")
