"""The built wheels in environments that have nothing but what an extra declares. `make installs` tries all with pip."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from pathlib import Path

import pytest
from tests.support.constants import DEADLINE
from tests.support.installs import (
    CHECKS,
    ROOT,
    build_wheel,
    check,
    create_environment,
    find_requirements,
    run,
)
from tests.support.pace import paced


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def link_packages(names: set[str], site: Path) -> None:
    """Link the files of installed packages into an environment, as if it had installed them."""
    for name in names:
        distribution = metadata.distribution(name)
        for top in {path.parts[0] for path in distribution.files or [] if path.parts[0] not in ("..", "__pycache__")}:
            target = site / top
            if not target.exists():
                target.symlink_to(str(distribution.locate_file(top)))


@pytest.mark.parametrize("extra", CHECKS)
def test_the_wheel_works_with_what_an_extra_declares_and_nothing_else(wheel: Path, extra: str, tmp_path: Path) -> None:
    python = create_environment(tmp_path / "environment")
    (site,) = tmp_path.glob("environment/lib/python*/site-packages")
    subprocess.run([sys.executable, "-m", "zipfile", "-e", wheel, site], check=True, timeout=paced(60))
    link_packages(find_requirements(extra), site)
    check(python, extra)


class Index(SimpleHTTPRequestHandler):
    """Serves files in the layout of a package index."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of an index with the wheels of a release."""
    folder = tmp_path_factory.mktemp("index")
    subprocess.run([ROOT / "hack/wheels", folder / "all"], check=True, capture_output=True, timeout=DEADLINE)
    for path in sorted((folder / "all").iterdir()):
        project = folder / "simple" / path.name.partition("-")[0].replace("_", "-")
        project.mkdir(parents=True)
        path.rename(project / path.name)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Index, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()
        thread.join(timeout=DEADLINE)


def test_the_library_and_the_commands_install_from_an_index_with_no_file_in_both(index: str, tmp_path: Path) -> None:
    python = create_environment(tmp_path / "environment")
    (site,) = tmp_path.glob("environment/lib/python*/site-packages")
    link_packages(find_requirements("client"), site)
    install = [
        sys.executable,
        "-m",
        "pip",
        "--isolated",
        "--python",
        str(python),
        "install",
        "-qq",
        "--index-url",
        index,
    ]
    environment = {
        name: value for name, value in os.environ.items() if not name.lower().startswith(("pip_", "pythonpath"))
    }

    def pip(name: str) -> set[str]:
        subprocess.run([*install, name], env=environment, check=True, timeout=2 * DEADLINE)
        (record,) = site.glob(f"{name.replace('-', '_')}-*.dist-info/RECORD")
        return {line.partition(",")[0] for line in record.read_text().splitlines()}

    library = pip("mcp-exec-client")
    assert not (python.parent / "mcp-exec").exists()
    run(python, "-c", CHECKS["client"])
    assert not library & pip("mcp-exec")
    assert "usage: mcp-exec" in run(python, python.parent / "mcp-exec", "--help")
