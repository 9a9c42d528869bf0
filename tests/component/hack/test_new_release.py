"""`make release` in a clone of the checkout: what it refuses, and what one release leaves."""

import subprocess
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import yaml
from tests.support.releases import ROOT, clone_checkout, git, make_release

Release = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return clone_checkout(tmp_path / "clone")


@pytest.fixture
def release(clone: Path) -> Release:
    return partial(make_release, clone)


@pytest.mark.timeout(600)
def test_a_release_has_one_version_everywhere_its_notes_and_its_checksums(clone: Path, release: Release) -> None:
    (clone / "changes" / "+sooner.fixed.md").write_text("It is sooner.\n")
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--message", "a change")
    done = release("0.9.0", "--checks", "", "--build", "wheels chart npm")
    assert done.returncode == 0, done.stdout + done.stderr
    assert git(clone, "describe", "--tags", "--exact-match") == "v0.9.0"
    assert git(clone, "status", "--porcelain") == ""
    assert [path.name for path in (clone / "changes").iterdir()] == ["README.md"]
    chart = yaml.safe_load((clone / "charts" / "mcp-exec" / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == ("0.9.0", "0.9.0")
    assert (clone / "hack/releases.txt").read_text().splitlines()[-1] == "v0.9.0", "upgrades are tried from it"
    for kept in ("values/0.9.0.yaml", "protocol/0.9.0.json"):
        assert (clone / "tests" / "data" / kept).exists()
    folder = clone / "build" / "release" / "0.9.0"
    assert {path.name for path in folder.iterdir()} == {
        "NOTES.md", "SHA256SUMS", "crds.yaml", "images.txt", "install.yaml", "mcp-exec-0.9.0.tgz",
        "mcp-exec-cluster-0.9.0.tgz", "mcp-exec-client-0.9.0.tgz",
        "mcp-exec-kustomize-0.9.0.tar.gz", *(f"mcp_exec{part}-0.9.0-py3-none-any.whl" for part in ("", "_client")),
    }  # fmt: skip
    assert "- It is sooner." in (folder / "NOTES.md").read_text()
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=folder, check=True)
    with tarfile.open(folder / "mcp-exec-0.9.0.tgz") as archive:
        assert "mcp-exec/values.schema.json" in archive.getnames()

    # CI builds again what was tagged, and lists what it pushed
    head, images = git(clone, "rev-parse", "HEAD"), (folder / "images.txt").read_text().split()
    (clone / ".cache").mkdir(exist_ok=True)
    pushed = [f"{image}@sha256:{'a' * 64}" for image in images]
    (clone / ".cache/pushed-images").write_text("\n".join(pushed))
    done = release("0.9.0", "--built", "--build", "chart")
    assert done.returncode == 0, done.stderr
    assert git(clone, "rev-parse", "HEAD") == head
    assert (folder / "images.txt").read_text().split() == pushed
    git(clone, "tag", "--delete", "v0.9.0")
    assert "this checkout is not that of the tag v0.9.0" in release("0.9.0", "--built", "--build", "chart").stderr


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("0.9", "'0.9' is no version; allowed: 1.2.3"),
        ("v0.9.0", "'v0.9.0' is no version"),
        ("0.0.1", "0.0.1 is not later than"),
        ("0.9.0", "there is a tag v0.9.0"),
    ],
)
def test_what_is_no_next_version_is_refused(clone: Path, release: Release, version: str, reason: str) -> None:
    git(clone, "tag", "v0.9.0")
    done = release(version, "--checks", "")
    assert (done.returncode, reason in done.stderr) == (1, True), done.stderr
    assert git(clone, "log", "--format=%s") == "before"


def test_a_checkout_with_changes_is_refused_and_failed_checks_change_nothing(clone: Path, release: Release) -> None:
    done = release("0.9.0", "--checks", "no-such-stage")
    assert "no release: `hack/stages no-such-stage` failed" in done.stderr
    assert git(clone, "status", "--porcelain") == ""
    (clone / "README.md").write_text("changed")
    assert "there are changes that are not committed" in release("0.9.0", "--checks", "").stderr


def test_the_environment_of_another_checkout_is_refused(clone: Path, release: Release) -> None:
    done = release("0.9.0", "--checks", "", PYTHONPATH="")
    assert "the virtual environment is that of another checkout, " in done.stderr
    assert git(clone, "log", "--format=%s") == "before"


@pytest.mark.parametrize(
    ("given", "expected"), [([], ""), (["CHECKS="], "--checks ''"), (["CHECKS=lint unit"], "--checks 'lint unit'")]
)
def test_checks_may_be_fewer_or_none(given: list[str], expected: str) -> None:
    command = ["make", "--dry-run", "--old-file=venv", "release", "VERSION=9.9.9", *given]
    shown = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    (line,) = (line for line in shown.splitlines() if "hack.new_release" in line)
    assert line.split("9.9.9")[1].strip() == expected
