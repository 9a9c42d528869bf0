"""The bundle of modules, as an image has it: one process writes it, and others import from it."""

import json
import os
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.pace import paced

ROOT = Path(__file__).parents[3]
START = """
import sys
sys.path.extend(sys.argv[1:])
from mcp_exec_sandbox import bundle
import mcp_exec_sandbox.import_locks
assert "typing" not in sys.modules, "it was imported with locks"
bundle.install()
from mcp_exec_sandbox.supervisor import lifecycle
import mcp_exec_sandbox.runner.__main__ as runner, calendar
(finder,) = [each for each in sys.meta_path if isinstance(each, bundle.BundleFinder)]
for name in ("calendar", lifecycle.__name__, runner.__name__, "mcp_exec_sandbox.bundle_builder"):
    assert finder.find_spec(name) is None, name
assert finder.find_spec("zoneinfo") is not None
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """The folder of the sandbox's packages, with a bundle, as in an image."""
    for package in ("sandbox_image/mcp_exec_sandbox", "tools/mcp_exec_tools"):
        shutil.copytree(ROOT / package, tmp_path / Path(package).name)
    run_python(tmp_path, "-m", "mcp_exec_sandbox.bundle_builder")
    return tmp_path


def run_python(packages: Path, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", *arguments],
        env=os.environ | {"PYTHONPATH": str(packages)},
        capture_output=True, text=True, timeout=paced(60), check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_it_has_what_a_sandbox_imports_but_its_builder(packages: Path) -> None:
    # Without `site`, whose files may import modules. They have the folders of libraries.
    run_python(packages, "-S", "-c", START, *sys.path)
    assert (packages / "mcp_exec_sandbox/modules.bundle").stat().st_size > 1_000_000


def test_a_sandbox_starts_without_openssl(packages: Path) -> None:
    """It takes a tenth of a start in gVisor, and 4 MB of each warm pod."""
    for folder in ("workspace", "tmp"):
        (packages / folder).mkdir()
    settings = {
        "PYTHONPATH": str(packages),
        "MCP_EXEC_TOKEN_SHA256": "0" * 64,
        "MCP_EXEC_HOST": "127.0.0.1",
        "MCP_EXEC_PORT": "0",
        "MCP_EXEC_WORKSPACE": str(packages / "workspace"),
        "MCP_EXEC_TMP": str(packages / "tmp"),
    }
    command = [sys.executable, "-P", str(packages / "mcp_exec_sandbox/__main__.py")]
    with subprocess.Popen(command, env=os.environ | settings, stdout=subprocess.PIPE, text=True) as supervisor:
        try:
            assert supervisor.stdout is not None
            assert select.select([supervisor.stdout], [], [], paced(20))[0], "the supervisor did not become ready"
            assert json.loads(supervisor.stdout.readline())["message"] == "ready"
            task = Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}")
            for process in (str(supervisor.pid), *(task / "children").read_text().split()):
                assert "/_ssl" not in Path(f"/proc/{process}/maps").read_text()
        finally:
            supervisor.terminate()
            supervisor.wait(paced(20))
