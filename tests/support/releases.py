"""Releases that tests make: a clone of the checkout, a registry of this machine, a key."""

import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.constants import DEADLINE
from tests.support.ports import free_port
from tests.support.until import eventually

ROOT = Path(__file__).parents[2]
PACKAGES = ("crds", "operator", "gateway", "broker", "client", "common", "sandbox_image", "servers_image", "tools")
CONFIG = """
version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {folder}/data}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


def git(folder: Path, *arguments: str) -> str:
    """Run git in a repository as somebody, and return what it prints."""
    names = ("-c", "user.name=Test", "-c", "user.email=test@example.com")
    done = subprocess.run(["git", *names, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def clone_checkout(folder: Path) -> Path:
    """Make a repository with the files of the checkout, as they are, in one commit."""
    folder.mkdir()
    for name in git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard").splitlines():
        file = ROOT / name
        if (file.is_file() or file.is_symlink()) and not name.startswith(("bench/data/", "tests/data/frameworks/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, folder / name, follow_symlinks=False)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "before")
    return folder


def make_release(
    clone: Path, version: str, *options: str, seconds: float = 4 * DEADLINE, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run what `make release` runs, in a clone."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(clone / name) for name in PACKAGES),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "VENV": str(Path(sys.executable).parents[1]),
        **{f"GIT_{who}_{what}": "test@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        **variables,
    }
    return subprocess.run(
        [sys.executable, "-m", "hack.new_release", version, *options],
        cwd=clone, env=environment, capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip


@contextmanager
def running_registry(folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Start an empty registry; yield its address."""
    port = free_port()
    (folder / "config.yml").write_text(CONFIG.format(folder=folder, port=port))
    command = ["docker-registry", "serve", str(folder / "config.yml")]
    variables = {**environment, "OTEL_TRACES_EXPORTER": "none"}
    log = folder / "registry.log"  # each probe for what is not there is an error of its own
    with log.open("wb") as output, subprocess.Popen(command, env=variables, stderr=output) as process:
        try:
            eventually(lambda: _answers(port), every=0.05, what="the registry answers")
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(timeout=DEADLINE)


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=DEADLINE):
            return True
    except urllib.error.URLError:
        return False
