"""The two wheels of a release: one version, and the same requirements for the same code."""

import tomllib
from pathlib import Path
from typing import Any

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


def test_both_wheels_take_their_version_from_its_one_declaration() -> None:
    sources = [
        (ROOT / folder / read(f"{folder}/pyproject.toml")["tool"]["hatch"]["version"]["path"]).resolve()
        for folder in (".", "client")
    ]
    assert sources == [ROOT / "crds/mcp_exec_api/wire/version.py"] * 2
