"""The Makefile's list of targets, and the stages of `make test`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MAKEFILE = (ROOT / "Makefile").read_text()


def test_help_has_a_line_for_every_target() -> None:
    targets = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.M)[0].split()
    done = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
    )
    assert [line.split()[0] for line in done.stdout.split("\n\n")[0].splitlines()] == targets


def test_test_runs_every_kind_of_check() -> None:
    assert re.search(
        r"^test: .*\n\t@hack/stages lint types \$\(if \$\(MEASURED\),coverage,unit component\) e2e$", MAKEFILE, re.M
    )
    assert re.search(r"^coverage: .*\n\t@MEASURED=yes hack/stages unit component\n\tcoverage report", MAKEFILE, re.M)


def test_continuous_integration_sets_no_variable_that_processes_read_as_a_setting() -> None:
    assert re.findall(r"^export .*MCP_EXEC_\w+=", (ROOT / ".ci/run").read_text(), re.M) == []


def test_what_runs_on_a_newer_kubernetes_exists_and_has_what_1_20_lacks() -> None:
    (names,) = re.findall(r"^on_newest=(.*)$", (ROOT / ".ci/run").read_text(), re.M)
    tests = ROOT / "tests/e2e"
    assert [
        name for name in names.split(",") if not ((tests / name).is_dir() or (tests / f"test_{name}.py").is_file())
    ] == []
    assert {"admission", "chart", "crds"} <= set(names.split(","))


def test_stages_end_with_the_first_that_fails_and_each_prints_its_time(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("good:\n\t@echo works\nbad:\n\t@exit 3\n")
    done = subprocess.run(
        [ROOT / "hack/stages", "good", "bad", "good"],
        cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False,
        env={"PATH": os.environ["PATH"], "STAGES_FILE": str(tmp_path / "stages")},
    )  # fmt: skip
    times = (tmp_path / "stages").read_text().splitlines()
    assert [re.sub("[0-9]+", "N", line) for line in times] == ["stage: good N min N s", "stage: bad N min N s"]
    assert (done.returncode, done.stdout.splitlines()) == (2, ["works", *times])


@pytest.mark.parametrize("workers", [[], ["--numprocesses=1"]], ids=["alone", "worker"])
def test_a_run_lists_the_tests_that_ran_again(tmp_path: Path, workers: list[str]) -> None:
    file = tmp_path / "test_flaky.py"
    file.write_text(
        "import pathlib\n"
        "def test_second_time() -> None:\n"
        "    second = pathlib.Path(__file__).with_suffix('.second')\n"
        "    assert second.exists() or second.touch()\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "--rootdir",
        str(tmp_path),
        "--reruns=1",
        *workers,
        str(file),
    ]
    environment = {**os.environ, "RERUNS_FILE": str(tmp_path / "reruns")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "reruns").read_text() == "test_flaky.py::test_second_time\n"
