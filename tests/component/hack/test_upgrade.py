"""hack/upgrade: which release `make upgrade` begins with."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.component.hack.shims import ROOT
from tests.support.pace import paced
from tests.support.releases import git

NOTHING = (
    "hack/upgrade: hack/releases.txt names no revision before this one, so there is nothing to upgrade from: "
    "add a tag or a commit to it.\n"
)
E2E = '#!/bin/sh\necho "$MCP_EXEC_UPGRADE_TAG from $(cat "$MCP_EXEC_UPGRADE_FROM/state"), with $*"\n'
IMAGES = '#!/bin/sh\necho "images of $TAG" >&2\n'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository of two commits, the former with the tag v0.1.0, and with programs in place of images and tests."""
    folder = tmp_path / "checkout"
    (folder / "hack").mkdir(parents=True)
    for name in ("lib.sh", "before.sh", "upgrade"):
        shutil.copy2(ROOT / "hack" / name, folder / "hack")
    for name, text in {"images": IMAGES, "e2e": E2E}.items():
        (folder / "hack" / name).write_text(text)
        (folder / "hack" / name).chmod(0o755)
    git(folder, "init", "--quiet")
    for state in ("before", "after"):
        (folder / "state").write_text(state)
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message", state)
    git(folder, "tag", "v0.1.0", "HEAD~1")
    git(folder, "tag", "v0.2.0", "HEAD")
    return folder


def upgrade(checkout: Path, *revisions: str) -> subprocess.CompletedProcess[str]:
    """Run the script, with the revisions in hack/releases.txt below its comment."""
    comment = (ROOT / "hack/releases.txt").read_text().splitlines()[0]
    (checkout / "hack/releases.txt").write_text("".join(f"{line}\n" for line in (comment, *revisions)))
    environment = os.environ | {"MCP_EXEC_CACHE": str(checkout.parent / "cache")}
    return subprocess.run(
        ["hack/upgrade", "-x"],
        cwd=checkout, env=environment, capture_output=True, text=True, timeout=paced(60), check=False,
    )  # fmt: skip


@pytest.mark.parametrize("revisions", [(), ("v0.2.0",)], ids=["none", "only this one"])
def test_without_an_earlier_revision_nothing_is_tried_and_that_is_a_failure(
    checkout: Path, revisions: tuple[str, ...]
) -> None:
    done = upgrade(checkout, *revisions)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", NOTHING)


def test_the_last_revision_before_this_one_is_built_and_upgraded(checkout: Path) -> None:
    done = upgrade(checkout, "v0.1.0", "v0.2.0")
    before = git(checkout, "rev-parse", "v0.1.0")[:12]
    assert (done.returncode, done.stdout) == (0, f"{before} from before, with -x\n"), done.stderr
    assert f"images of {before}\n" in done.stderr


def test_a_revision_that_the_clone_lacks_is_named(checkout: Path) -> None:
    done = upgrade(checkout, "v0.1.0", "v0.3.0")
    assert (done.returncode, done.stdout) == (1, "")
    assert "hack/releases.txt names v0.3.0, which this clone lacks: fetch the whole history" in done.stderr
