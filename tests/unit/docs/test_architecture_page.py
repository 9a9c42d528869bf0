"""The table of docs/internals/architecture.md that says where to change what, compared with the tree."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/internals/architecture.md").read_text()
PACKAGES = (
    "operator/mcp_exec_operator",
    "gateway/mcp_exec_gateway",
    "broker/mcp_exec_broker",
    "client/mcp_exec_client",
    "sandbox_image/mcp_exec_sandbox",
    "common/mcp_exec_common",
    "tools/mcp_exec_tools",
)


def named_paths() -> list[str]:
    """Return the paths of the table's second column."""
    table = PAGE.partition("| to change | open |\n|---|---|\n")[2].partition("\n\n")[0]
    return [path for row in table.splitlines() for path in re.findall(r"`([\w./-]*/[\w./-]*)`", row.split(" | ")[1])]


def test_every_path_of_the_table_exists() -> None:
    assert len(named_paths()) > 40
    # A folder that a change has emptied may still hold `__pycache__`.
    missing = [path for path in named_paths() if not (ROOT / path).is_file() and not any((ROOT / path).glob("*.*"))]
    assert missing == []


def test_every_folder_of_a_process_is_in_the_table() -> None:
    folders = [
        f"{package}/{path.parent.name}" for package in PACKAGES for path in (ROOT / package).glob("*/__init__.py")
    ]
    covered = tuple(named_paths())
    assert [folder for folder in folders if not any(f"{path}/".startswith(f"{folder}/") for path in covered)] == []
