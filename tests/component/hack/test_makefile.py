"""The Makefile's list of targets."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
MAKEFILE = (ROOT / "Makefile").read_text()


def test_help_has_a_line_for_every_target() -> None:
    targets = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.M)[0].split()
    done = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
    )
    assert [line.split()[0] for line in done.stdout.split("\n\n")[0].splitlines()] == targets


def test_test_runs_every_kind_of_check() -> None:
    assert re.search(r"^test: lint types coverage e2e\b", MAKEFILE, re.M)
    assert re.search(r"^coverage: unit component\b", MAKEFILE, re.M)
