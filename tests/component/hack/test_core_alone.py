"""The core of each process, type-checked without the features."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CORE = ("__init__.py", "settings.py", "metrics.py", "core", "cluster")
"""What the core of a process may import of its package."""
SHARED = ("common", "crds", "tools")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("process", ["broker", "gateway", "operator"])
def test_the_types_of_a_core_are_complete_without_features(process: str, tmp_path: Path) -> None:
    package = Path(process) / f"mcp_exec_{process}"
    (tmp_path / package).mkdir(parents=True)
    for name in CORE:
        path = ROOT / package / name
        if path.is_dir():
            shutil.copytree(path, tmp_path / package / name)
        elif path.exists():
            shutil.copy(path, tmp_path / package)
    for name in SHARED:
        (tmp_path / name).symlink_to(ROOT / name)
    # a process of its own, because mypy changes limits of the interpreter; the settings name folders relative to it
    settings = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / "build/types")]
    command = [sys.executable, "-m", "mypy", *settings, "--package", package.name]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    assert (checked.returncode, checked.stderr) == (0, ""), checked.stdout + checked.stderr
