"""Deno, which runs and checks TypeScript: the binary of the package `deno` in this environment."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.pace import paced


def run_deno(arguments: Sequence[str], *, folder: Path, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """Run Deno in a folder, without network. It keeps what it compiles there."""
    environment = {"PATH": os.environ["PATH"], "DENO_DIR": str(folder / ".deno"), "NO_COLOR": "1"}
    binary = Path(sys.executable).parent / "deno"
    assert binary.exists(), "deno is missing: install the development dependencies"
    return subprocess.run(
        [str(binary), *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=paced(seconds)
    )
