"""The core of each process, type-checked without the features."""

import gc
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mypy import api as mypy

ROOT = Path(__file__).parents[2]
CORE = ("__init__.py", "settings.py", "metrics.py", "core", "cluster")
"""What the core of a process may import of its package."""
SHARED = ("common", "crds", "tools")


@pytest.fixture(autouse=True)
def limits_of_the_interpreter() -> Iterator[None]:
    """Restore what mypy changes for the whole process."""
    recursion, threshold = sys.getrecursionlimit(), gc.get_threshold()
    yield
    sys.setrecursionlimit(recursion)
    gc.set_threshold(*threshold)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("process", ["broker", "gateway", "operator"])
def test_the_types_of_a_core_are_complete_without_features(
    process: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    monkeypatch.chdir(tmp_path)  # the settings name folders relative to it
    settings = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / "build/types")]
    output, errors, code = mypy.run([*settings, "--package", package.name])
    assert (code, errors) == (0, ""), output + errors
