"""The Makefile's list of targets, and the stages of `make test`."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hack.ci.parts import PARTS
from hack.ci.targets import CHECKED_BY

ROOT = Path(__file__).parents[3]
MAKEFILE = (ROOT / "Makefile").read_text()


def test_help_has_a_line_for_every_target() -> None:
    targets = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.M)[0].split()
    done = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
    )
    assert [line.split()[0] for line in done.stdout.split("\n\n")[0].splitlines()] == targets


def test_fmt_makes_what_lint_checks() -> None:
    recipes = dict(re.findall(r"^(lint|fmt): .*\n((?:\t.*\n)+)", MAKEFILE, re.M))
    assert "\truff check .\n\truff format --check .\n" in recipes["lint"]
    assert recipes["fmt"] == "\truff check --fix .\n\truff format .\n"


def test_test_runs_every_kind_of_check() -> None:
    assert re.search(
        r"^test: .*\n\t@hack/stages lint types \$\(if \$\(MEASURED\),coverage,unit component\) e2e$", MAKEFILE, re.M
    )
    assert re.search(r"^coverage: .*\n\t@MEASURED=yes hack/stages unit component\n\tcoverage report", MAKEFILE, re.M)


def test_each_target_and_nothing_else_has_a_check_that_runs_it() -> None:
    targets = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.M)[0].split()
    assert sorted(CHECKED_BY) == sorted(targets)


@pytest.mark.parametrize(("target", "check"), sorted(CHECKED_BY.items()))
def test_what_checks_a_target_exists_and_runs_it(target: str, check: str) -> None:
    if check in PARTS:
        scripts = [ROOT / word for word in PARTS[check].command if "/" in word and (ROOT / word).is_file()]
        words = [*PARTS[check].command, *(word for script in scripts for word in script.read_text().split())]
        stands_for = {"wheel": "installs", "release": "long", "bench": "bench-smoke"}
        assert stands_for.get(target, target) in words
    elif check == "test":
        assert re.search(rf"^(test|coverage): .*\n\t.*hack/stages .*\b{target}\b", MAKEFILE, re.M) or target == "images"
    else:
        assert (ROOT / check).exists()


def test_wheels_need_no_virtual_environment() -> None:
    command = ["make", "--no-print-directory", "-n", "wheel", "VENV=/nonexistent"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=30).stdout
    assert shown.splitlines()[-1] == "hack/wheels build"
    assert "hack/venv" not in shown


@pytest.mark.timeout(180)
def test_generate_changes_nothing_that_is_committed(tmp_path: Path) -> None:
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, timeout=30).stdout
    listed = {name.decode(): (ROOT / name.decode()) for name in names.split(b"\0") if name}
    for name, path in listed.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, tmp_path / name, follow_symlinks=False)
    folders = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["dev-mode-dirs"]
    done = subprocess.run(
        ["make", "--no-print-directory", "generate"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=150,
        env={
            **os.environ,
            "VENV": str(Path(sys.prefix)),
            "PYTHONPATH": os.pathsep.join(str(tmp_path / folder) for folder in folders),
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [
        name for name, path in listed.items() if path.is_file() and path.read_bytes() != (tmp_path / name).read_bytes()
    ] == []


def test_clean_keeps_the_cluster_and_the_environment(tmp_path: Path) -> None:
    for kept in (".cache/kubeconfig", ".cache/images/sandbox.tar", "build/site/index.html", ".venv/bin/python"):
        (tmp_path / kept).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / kept).touch()
    command = ["make", "--no-print-directory", "-f", str(ROOT / "Makefile"), "clean"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, timeout=30)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()) == [
        ".cache/kubeconfig",
        ".venv/bin/python",
    ]


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


def test_the_limit_of_a_test_grows_with_the_factor_of_the_machine(tmp_path: Path) -> None:
    file = tmp_path / "test_slow.py"
    file.write_text(
        "import threading\nimport pytest\n@pytest.mark.timeout(0.2)\n"
        "def test_slow() -> None:\n    threading.Event().wait(1)\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "--rootdir", str(tmp_path), str(file)]
    status = [
        subprocess.run(
            command, cwd=ROOT, env={**os.environ, "TIME_FACTOR": factor}, capture_output=True, check=False, timeout=60
        ).returncode
        for factor in ("1", "50")
    ]
    assert status == [1, 0]
