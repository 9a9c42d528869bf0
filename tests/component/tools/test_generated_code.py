"""Generated wrappers, checked by mypy and ruff."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.pace import paced
from tests.unit.tools.wrappers.conftest import ROOT, real_catalogs, write
from tests.unit.tools.wrappers.hostile import hostile_catalog

from mcp_exec_tools.wrappers import build_files

CLIENT = '''"""Stub of the module `client` for type checkers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any


class ToolError(Exception):
    """A call failed."""


async def call_wrapped(
    tool: str,
    values: tuple[Any, ...],
    arguments: Mapping[str, Any],
    parameters: Mapping[str, bool],
    spellings: Mapping[str, str] = {},
    *,
    fixed: Mapping[str, Any] = {},
    is_open: bool = False,
    result_format: str | None = None,
) -> Any:
    """Call a tool."""


def bind_arguments(
    tool: str,
    values: Sequence[Any],
    named: Mapping[str, Any],
    parameters: Mapping[str, bool],
    spellings: Mapping[str, str],
) -> dict[str, Any]:
    """Bind arguments to parameters."""
    return {}


def load_lazily(package: str, names: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Make a package lazy."""
    return lambda name: package
'''

CATALOGS = real_catalogs()


def test_every_wrapper_passes_mypy_strict_with_and_without_stubs(tmp_path: Path) -> None:
    catalogs = [*CATALOGS, hostile_catalog()]
    write(tmp_path / "plain", {"__init__.py": "", **build_files(catalogs)})
    write(tmp_path / "stubbed", {"__init__.py": "", **build_files(catalogs, stubs=True)})
    (tmp_path / "client.py").write_text(CLIENT)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(tmp_path / "cache")]
    checked = subprocess.run(
        [*command, "-p", "plain", "-p", "stubbed"], cwd=tmp_path, capture_output=True, text=True, timeout=paced(110)
    )
    assert checked.returncode == 0, checked.stdout[-3000:] + checked.stderr[-1000:]


def test_calls_are_checked_against_the_stubs(tmp_path: Path) -> None:
    write(tmp_path / "servers", {"__init__.py": "", **build_files(CATALOGS, stubs=True)})
    (tmp_path / "client.py").write_text(CLIENT)
    (tmp_path / "agent.py").write_text(
        "from servers.github import create_issue, listIssues\n"
        "from servers.supabase import executeSQL, list_tables\n"
        "async def good() -> None:\n"
        "    await create_issue(owner='o', repo='r', title='t')\n"
        "    await create_issue({'owner': 'o', 'repo': 'r', 'title': 't', 'labels': ['bug']})\n"
        "    await listIssues(owner='o', repo='r', state='open')\n"
        "    await list_tables(project_id='p')\n"
        "    await list_tables({'project_id': 'p', 'verbose': True})\n"
        "    await create_issue('o', 'r', 't', 'text', labels=['bug'])\n"
        "    print((await executeSQL('p', 'SELECT 1'))[0].keys())\n"
        "async def bad() -> None:\n"
        "    await create_issue(owner='o', repo='r')\n"
        "    await listIssues(owner='o', repo='r', state='ajar')\n"
        "    await create_issue({'owner': 'o', 'repo': 'r', 'title': 5})\n"
        "    await create_issue('o', 'r', 5)\n"
        "    await create_issue('o', 'r', 't', 'b', [], 1, [], 'more')\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(tmp_path / "cache")]
    checked = subprocess.run([*command, "agent.py"], cwd=tmp_path, capture_output=True, text=True, timeout=paced(110))
    lines = {line.split(":")[1] for line in checked.stdout.splitlines() if ": error:" in line}
    assert lines == {"12", "13", "14", "15", "16"}, checked.stdout


def test_what_is_generated_is_formatted_and_clean(tmp_path: Path) -> None:
    write(tmp_path / "servers", build_files(CATALOGS, stubs=True))
    formatted = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "120", "--diff", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=paced(60),
    )
    assert formatted.returncode == 0, formatted.stdout[:3000]
    linted = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F,E7,E9,B,D1", str(tmp_path / "servers")],
        capture_output=True,
        text=True,
        timeout=paced(60),
    )
    assert linted.returncode == 0, linted.stdout[:3000]


def test_wrappers_of_a_hostile_catalog_are_formatted(tmp_path: Path) -> None:
    write(tmp_path, build_files([hostile_catalog()], stubs=True))
    formatted = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "120", "--diff", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=paced(60),
    )
    assert formatted.returncode == 0, formatted.stdout[:3000]


def test_every_process_writes_the_same_bytes(tmp_path: Path) -> None:
    catalogs = [str(path) for path in sorted((ROOT / "servers" / "catalogs").glob("*.json"))]
    written = []
    for seed, files in (("1", catalogs), ("2", catalogs[::-1])):
        command = [sys.executable, "-m", "mcp_exec_client", "servers", "generate", "--from-file", *files]
        environment = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run([*command, "--out", str(tmp_path / seed)], env=environment, check=True, timeout=paced(60))
        paths = [path for path in (tmp_path / seed).rglob("*") if path.is_file()]
        written.append({path.relative_to(tmp_path / seed): path.read_bytes() for path in paths})
    assert len(written[0]) > 2 * len(catalogs)
    assert written[0] == written[1]
