import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.pace import paced

from mcp_exec_api.wire.version import RELEASE

ROOT = Path(__file__).parents[3]
REPOSITORY = "https://git.example.com/team/mcp-exec"
ADDRESS = "https://docs.example.com/mcp-exec"


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a site with this version, built strictly, and an older one."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "0.0.1").mkdir()
    (folder / "versions.json").write_text('[{"version": "0.0.1", "title": "0.0.1", "aliases": []}]')
    path = f"{sys.prefix}/bin:{os.environ['PATH']}"
    env = os.environ | {"VENV": sys.prefix, "PATH": path, "PROJECT_URL": REPOSITORY, "SITE_URL": ADDRESS}
    command = ["hack/docs", "--folder", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=paced(600))
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def pages(site: Path) -> Path:
    """Folder of this version's pages."""
    return site / RELEASE
