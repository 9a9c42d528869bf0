"""Lines that install the project: nothing is published, so each names a checkout or a built wheel, and real extras."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXTRAS = {
    folder: tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for folder in (".", "client")
}
SOURCES = {
    ".": EXTRAS["."],
    "./client": EXTRAS["client"],
    "build/mcp_exec_client-VERSION-py3-none-any.whl": EXTRAS["client"],
}
"""What can be installed, and its extras."""
FOLDERS = ("docs", "charts", "client", "gateway", "operator", "broker", "sandbox_image", "servers_image", "examples")
LINE = re.compile(r"\bpip3? install +(?P<quote>['\"]?)(?P<what>[^'\"`\n ]+)(?P=quote)")
FILES = [
    *(
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".md", ".py", ".txt", ".yaml") and path != ROOT / "client/README.md"  # an index shows it
    ),
    *ROOT.glob("*.md"),
]


def wrong(text: str) -> list[str]:
    """Return what is installed by a name that no index has, or with an extra that does not exist."""
    found = []
    for match in LINE.finditer(text):
        source, _, extras = match["what"].removesuffix("]").partition("[")
        if source not in SOURCES or set(filter(None, extras.split(","))) - SOURCES[source].keys():
            found.append(match["what"])
    return found


def test_every_file_installs_only_what_exists() -> None:
    found = {str(path.relative_to(ROOT)): wrong(path.read_text()) for path in FILES if path.is_file()}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "line",
    ["pip install mcp-exec", "pip install 'mcp-exec[client]'", "pip install '.[clients]'", "pip install other"],
)
def test_a_line_that_works_only_once_the_project_is_published_is_refused(line: str) -> None:
    assert len(wrong(line)) == 1


def test_the_pages_for_clients_have_an_install_line() -> None:
    for page in ("services/python-client.md", "agents/agent-loop.md", "kubectl/troubleshooting.md"):
        assert LINE.search((ROOT / "docs" / page).read_text()), page
