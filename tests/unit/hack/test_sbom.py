"""The list of an image's packages, from the records of their package managers."""

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def sbom(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "hack"))
    monkeypatch.delitem(sys.modules, "sbom", raising=False)
    import sbom

    return sbom


STATUS = """Package: libc6
Status: install ok installed
Version: 2.36-9+deb12u13
Description: GNU C Library
 Package: not-a-field

Package: removed
Status: deinstall ok config-files
Version: 1
"""


def test_the_installed_packages_of_debian_are_listed(sbom: Any) -> None:
    assert list(sbom.list_debian(STATUS)) == [("deb", "libc6", "2.36-9+deb12u13")]
    control = "Package: git\nVersion: 1:2.39.5-0+deb12u3\nArchitecture: amd64\n"
    assert list(sbom.list_debian(control)) == [("deb", "git", "1:2.39.5-0+deb12u3")]


def test_the_packages_of_npm_are_listed_by_their_names(sbom: Any) -> None:
    text = (
        '{"packages": {"node_modules/@a/b": {"version": "1.0.0"}, "node_modules/c/node_modules/d": {"version": "2"}}}'
    )
    assert list(sbom.list_npm(text)) == [("npm", "@a/b", "1.0.0"), ("npm", "d", "2")]


def test_the_packages_of_python_are_listed(sbom: Any, tmp_path: Path) -> None:
    folder = tmp_path / "Some_Thing-1.2.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: Some_Thing\nVersion: 1.2\n")
    assert list(sbom.list_python(tmp_path)) == [("pypi", "some-thing", "1.2")]


def test_a_package_has_its_url(sbom: Any) -> None:
    packages = [("deb", "libc6", "2.36-9+deb12u13"), ("npm", "@a/b", "1.0.0"), ("pypi", "h11", "0.16.0")]
    document = sbom.build_document(packages)
    urls = [each["purl"] for each in document["components"]]
    assert urls == ["pkg:deb/debian/libc6@2.36-9%2Bdeb12u13", "pkg:npm/%40a/b@1.0.0", "pkg:pypi/h11@0.16.0"]
    assert document == sbom.build_document(packages)
