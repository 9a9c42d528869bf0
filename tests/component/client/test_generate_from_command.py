"""`mcp-exec servers generate --from-command`."""

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
