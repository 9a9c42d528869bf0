"""The lock files: exact, hashed versions of pyproject.toml's requirements, without package indexes."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKS = ("dev", "operator", "gateway", "broker", "servers", "sandbox", "libraries", "data", "docs", "npm")


def locked(name: str) -> dict[str, list[str]]:
    """Return the versions of each package: more than one if they differ by platform."""
    found: dict[str, list[str]] = {}
    for package, version in re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "locks" / f"{name}.txt").read_text(), re.M):
        found.setdefault(canonicalize_name(package), []).append(version)
    return found


def declared(extra: str) -> list[Requirement]:
    return [Requirement(line) for line in PROJECT["optional-dependencies"][extra]]


@pytest.mark.parametrize("name", LOCKS)
def test_every_requirement_is_exact_and_hashed(name: str) -> None:
    text = (ROOT / "locks" / f"{name}.txt").read_text()
    entries = re.split(r"\n(?=\S)", text.strip())
    assert all("==" in entry and "--hash=sha256:" in entry for entry in entries)
    assert "://" not in text
    assert " @ " not in text


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_satisfies_what_is_declared(name: str) -> None:
    versions = locked(name)
    wanted = [requirement for requirement in declared(name) if requirement.name != PROJECT["name"]]
    if name not in ("sandbox", "libraries", "data", "docs", "npm"):
        wanted += [Requirement(line) for line in PROJECT["dependencies"]]
    for requirement in wanted:
        found = versions.get(canonicalize_name(requirement.name), [])
        assert found, f"{requirement} is not in locks/{name}.txt: run `make lock`"
        assert all(requirement.specifier.contains(version) for version in found), f"{requirement}: run `make lock`"


@pytest.mark.parametrize("name", ["operator", "gateway", "broker", "servers", "sandbox", "libraries"])
def test_images_hold_the_versions_that_the_tests_run_with(name: str) -> None:
    dev = locked("dev")
    assert {package: versions for package, versions in locked(name).items() if dev.get(package) != versions} == {}


@pytest.mark.parametrize("name", ["operator", "gateway", "broker", "servers", "sandbox", "data"])
def test_what_an_image_gets_does_not_hang_on_the_patch_level_of_this_machine_s_python(name: str) -> None:
    # pip evaluates markers for its own interpreter, but the images have another one
    text = (ROOT / "locks" / f"{name}.txt").read_text()
    assert not re.findall(r"python_full_version \S+ '3\.11\.[1-9]\d*'", text)


def test_the_data_image_has_the_versions_of_the_libraries_that_tests_have_too() -> None:
    dev, data = locked("dev"), locked("data")
    assert {"numpy", "pandas", "matplotlib"} <= dev.keys() & data.keys()
    assert {package: versions for package, versions in data.items() if dev.get(package, versions) != versions} == {}
    assert locked("libraries").items() <= data.items()


def test_what_npm_has_is_locked_by_digest_and_from_no_particular_registry() -> None:
    wanted = json.loads((ROOT / "servers_image/package.json").read_text())
    lock = json.loads((ROOT / "servers_image/package-lock.json").read_text())
    own, *packages = lock["packages"].values()
    assert (own["dependencies"], own["optionalDependencies"]) == (
        wanted["dependencies"],
        wanted["optionalDependencies"],
    )
    assert all(package["integrity"].startswith("sha512-") and "resolved" not in package for package in packages)


def test_the_base_images_are_locked_by_digest_and_no_dockerfile_names_another() -> None:
    lines = [line for line in (ROOT / "locks/images.txt").read_text().splitlines() if not line.startswith("#")]
    tags = ("3.11-slim-bookworm", "3.13-slim-trixie")
    for line, tag in zip(lines, tags, strict=True):
        assert re.fullmatch(rf"docker\.io/library/python:{re.escape(tag)}@sha256:[0-9a-f]{{64}}", line)
    dockerfiles = list(ROOT.glob("*/Dockerfile"))
    assert len(dockerfiles) == 6
    for path in dockerfiles:
        text = path.read_text()
        assert re.findall(r"^(?:ARG BASE|FROM) .*|^ARG BASE.*", text, re.M) == ["ARG BASE", "FROM ${BASE}"], path
    assert not re.findall(r"python:3[\w.-]+", (ROOT / "hack/images").read_text()), "the digest is in locks/images.txt"


def test_the_sandbox_holds_h11_alone() -> None:
    assert set(locked("sandbox")) == {"h11"}
