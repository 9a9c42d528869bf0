"""The bundle of modules, as an image has it: one process writes it, and others import from it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.pace import paced

ROOT = Path(__file__).parents[3]
START = """
import sys
from mcp_exec_sandbox import bundle
bundle.install()
from mcp_exec_sandbox.supervisor import lifecycle
import mcp_exec_sandbox.runner.__main__ as runner, calendar
(finder,) = [each for each in sys.meta_path if isinstance(each, bundle.BundleFinder)]
for name in ("calendar", lifecycle.__name__, runner.__name__, "mcp_exec_sandbox.bundle_builder"):
    assert finder.find_spec(name) is None, name
assert finder.find_spec("zoneinfo") is not None
"""


def test_it_has_what_a_sandbox_imports_but_its_builder(tmp_path: Path) -> None:
    for package in ("sandbox_image/mcp_exec_sandbox", "tools/mcp_exec_tools"):
        shutil.copytree(ROOT / package, tmp_path / Path(package).name)
    for arguments in (("-m", "mcp_exec_sandbox.bundle_builder"), ("-c", START)):
        done = subprocess.run(
            [sys.executable, "-P", *arguments],
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
            capture_output=True, text=True, timeout=paced(60), check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "mcp_exec_sandbox/modules.bundle").stat().st_size > 1_000_000
