"""The two wheels of a release: one version, and the same requirements for the same code."""

import shutil
import tomllib
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.metadata.spec import DEFAULT_METADATA_VERSION, get_core_metadata_constructors
from hatchling.plugin.manager import PluginManager
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]


def read(path: str) -> Any:
    return tomllib.loads((ROOT / path).read_text())


def find_required(extras: dict[str, list[str]], *names: str) -> set[str]:
    """Return what extras require, through others of the same project."""
    found: set[str] = set()
    for line in (line for name in names for line in extras[name]):
        requirement = Requirement(line)
        found |= find_required(extras, *requirement.extras) if requirement.extras else {line}
    return found


def test_both_wheels_require_the_same_for_the_client() -> None:
    whole, client = read("pyproject.toml")["project"], read("client/pyproject.toml")["project"]
    extras = whole["optional-dependencies"]
    assert set(client["dependencies"]) == {*whole["dependencies"], *extras["client"]}
    for name, lines in client["optional-dependencies"].items():
        assert set(lines) == find_required(extras, name) - find_required(extras, "cli"), name
    assert client["requires-python"] == whole["requires-python"]


DECLARATION = "crds/mcp_exec_api/wire/version.py"
SOURCES = (
    "pyproject.toml", "client/pyproject.toml", "hatch_build.py", "README.md", "client/README.md", "LICENSE",
    DECLARATION, "hack/places.env", "hack/artifacts/places.py",
)  # fmt: skip


def read_metadata(folder: Path, project: str, *, release: str = "0.2.0") -> Message:
    """Return the metadata of a wheel of another release."""
    for path in SOURCES:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, folder / path)
    (folder / DECLARATION).write_text(f'RELEASE = "{release}"\n')
    metadata = ProjectMetadata(str(folder / project), PluginManager())
    text = get_core_metadata_constructors()[DEFAULT_METADATA_VERSION](metadata)
    return HeaderParser().parsestr(text)


@pytest.mark.parametrize("project", [".", "client"])
@pytest.mark.parametrize(("release", "normal"), [("0.2.0", "0.2.0"), ("0.2.0-rc.1", "0.2.0rc1")])
def test_both_wheels_have_the_version_of_its_one_declaration_in_its_normal_form(
    tmp_path: Path, project: str, release: str, normal: str
) -> None:
    assert read_metadata(tmp_path, project, release=release)["Version"] == normal


@pytest.mark.parametrize("project", [".", "client"])
def test_both_wheels_say_where_the_project_is(tmp_path: Path, project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROJECT_URL", "https://git.example/mcp-exec")
    monkeypatch.setenv("SITE_URL", "https://docs.example/")
    found = read_metadata(tmp_path, project)
    assert found.get_all("Project-URL") == [
        "Documentation, https://docs.example",
        "Repository, https://git.example/mcp-exec",
    ]
    assert found["Maintainer"] == "mcp-exec"


@pytest.mark.parametrize("project", [".", "client"])
def test_a_wheel_of_a_project_without_addresses_names_none(
    tmp_path: Path, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PROJECT_URL", "SITE_URL"):
        monkeypatch.delenv(name, raising=False)
    found = read_metadata(tmp_path, project)
    assert found.get_all("Project-URL") is None
    assert "Programming Language :: Python :: 3.11" in found.get_all("Classifier", [])
