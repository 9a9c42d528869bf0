"""Names in a workspace that are not written to the user's machine by default, as every file system reads them."""

from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest

from mcp_exec_client.state.folders import EXCLUDED, UNSAFE, NameFilter, find_target, join_name
from mcp_exec_client.state.results import safe_name

GIT = [
    ".git/config",
    "a/.GIT/config",
    "git~1/config",
    "GIT~12/hooks/x",
    "gi7eba~1/config",
    ".git::$INDEX_ALLOCATION/config",
    ".git:$I30:$INDEX_ALLOCATION/config",
    ".git ./config",
    ".git...",
    ".g\u200cit/config",
    "\ufeff.git/config",
    "\uff0egit/config",
    "HEAD",
    "sub/head::$DATA",
]
HIDDEN = [
    ".husky/pre-commit",
    ".Rprofile",
    ".vimrc",
    ".exrc",
    ".envrc",
    ".env",
    ".mcp.json",
    ".vscode/tasks.json",
    ".idea/workspace.xml",
    ".continue/config.yaml",
    ".kiro/settings/mcp.json",
    ".roo/mcp.json",
    ".cursor/mcp.json",
    ".claude/settings.json",
    ".an-agent-of-next-year/mcp.json",
    ".gitattributes",
]
EXECUTED = [
    "_vimrc",
    "_gvimrc",
    "_netrc",
    "$irbrc",
    "pyvenv.cfg",
    "env/PYVENV.CFG",
    "python313._pth",
    "a.pth",
    "conftest.py",
    "conftest.py::$DATA",
    "sub/conftest.py.",
    "sitecustomize.py",
    "x.code-workspace",
    "mise.toml",
    "mise.local.toml",
    "AGENTS.md",
    "sub/CLAUDE.md",
    "CLAUDE.local.md",
    "desktop.ini",
    "x.lnk",
    "x.desktop ",
]
DEVICES = ["con", "AUX.txt", "nul.", "com1", "a/LPT9.csv", "CONIN$", "prn:x", "C:evil.txt", "c:/x"]
HARMLESS = [
    "report.csv",
    "gitignore",
    "git/config",
    "2026-11-28T05:08:40.csv",
    "a~b.txt",
    "notes.txt~",
    "_static/style.css",
    "__init__.py",
    "_helpers.py",
    "src/rc.py",
    "console.log",
    "context.md",
    "auxiliary.txt",
    "company.csv",
    "com10x.txt",
    "headlines.csv",
    "refs/main",
    "head.txt",
    "url.py",
    "read.me.md",
    "\u65e5\u672c.txt",
    "a b.txt",
]


@pytest.mark.parametrize("path", [*GIT, *HIDDEN, *EXECUTED, *DEVICES])
def test_what_programs_of_the_user_execute_has_an_unsafe_name(path: str) -> None:
    assert NameFilter(UNSAFE).matches(path)


@pytest.mark.parametrize("path", HARMLESS)
def test_what_is_data_for_all_programs_has_a_safe_name(path: str) -> None:
    assert not NameFilter(UNSAFE).matches(path)


@pytest.mark.parametrize("name", [*GIT, *HIDDEN, *EXECUTED, *DEVICES])
def test_an_artifact_gets_another_name_than_one_that_programs_execute(name: str) -> None:
    assert not NameFilter(UNSAFE).matches(safe_name(name, default="artifact-a0"))


def test_an_artifact_keeps_a_name_that_is_safe() -> None:
    assert [safe_name(name, default="") for name in ("plot.png", "a/b c.csv")] == ["plot.png", "b c.csv"]


def test_a_choice_of_the_user_replaces_the_rules() -> None:
    assert not NameFilter(()).matches(".git/config")
    assert [NameFilter(EXCLUDED).matches(path) for path in (".envrc", "a/.Git/x", "node_modules")] == [
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("kind", "name"),
    [(PureWindowsPath, "C:evil.txt"), (PureWindowsPath, "C:"), (PureWindowsPath, "a\\b"), (PurePosixPath, "a/b")],
)
def test_a_name_that_is_a_path_elsewhere_is_never_joined_to_a_folder(
    monkeypatch: pytest.MonkeyPatch, kind: type[PureWindowsPath], name: str
) -> None:
    with pytest.raises(ValueError, match="is no name of a file"):
        join_name(kind("D:/folder"), name)  # type: ignore[arg-type]


def test_a_name_with_a_colon_is_a_file_of_the_folder_in_posix(tmp_path: Path) -> None:
    assert find_target(tmp_path, "a/05:08.csv") == tmp_path / "a" / "05:08.csv"
