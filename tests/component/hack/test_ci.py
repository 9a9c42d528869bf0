"""`.ci/run`: what it runs by the speed of the machine, and parts that take turns."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hack.ci import __main__ as ci
from hack.ci.__main__ import Failed, Runner
from hack.ci.parts import LIMIT_MINUTES, PARTS, Green, list_by_age, list_old, record
from hack.ci.plan import BUDGET_MINUTES, LONG_FILES, OLDEST, choose_plan, make_plan
from tests.support.pace import paced
from tests.support.until import eventually

ROOT = Path(__file__).parents[3]


def test_the_plan_leaves_out_in_a_stated_order_what_does_not_fit() -> None:
    plan = make_plan(factor=1, newest=True, part="demo", budget=1000)
    for number, name in enumerate(("coverage", "1.20", "the part demo", "long files"), 1):
        plan = make_plan(factor=1, newest=True, part="demo", budget=plan.minutes - 1)
        assert len(plan.left_out) == number
        assert name in plan.left_out[-1]


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_every_run_on_an_ordinary_machine_fits_into_the_limit_with_all_of_make_test(factor: float) -> None:
    plan = make_plan(factor=factor, newest=True, part="demo")
    assert plan.minutes <= BUDGET_MINUTES
    assert plan.long_files


def test_a_run_on_the_slowest_machine_fits_without_the_longest_files() -> None:
    plan = make_plan(factor=3.5, newest=True, part="demo")
    assert plan.minutes <= BUDGET_MINUTES
    assert len(plan.left_out) == 4


def test_without_another_kubernetes_nothing_runs_twice() -> None:
    plan = make_plan(factor=1, newest=False, part="browser")
    assert [line for line in plan.describe() if "1.20" in line] == ["make test MEASURED=yes, on Kubernetes 1.20"]


def test_the_plan_is_printed_for_a_named_factor() -> None:
    done = subprocess.run(
        (ROOT / ".ci/run", "--plan", "3.5"),
        capture_output=True, text=True, check=True, timeout=60,
        env={**os.environ, "VENV": sys.prefix, "KUBERNETES_BINARIES": str(ROOT)},
    )  # fmt: skip
    assert "factor 3.5" in done.stdout
    assert f"WITHOUT={','.join(LONG_FILES)}" in done.stdout


def test_the_part_that_was_green_longest_ago_is_next_and_one_that_never_was_waits_to_be_run_alone() -> None:
    green = {name: Green(part=name, commit="c", at=f"2026-01-{day:02}T00:00Z") for day, name in enumerate(PARTS, 1)}
    newest = list(PARTS)[-1]
    assert list_by_age(green) == list(PARTS)
    assert list_by_age({name: each for name, each in green.items() if name != newest}) == list(PARTS)[:-1]
    assert choose_plan(factor=1, newest=True, parts=list_by_age({})).part == ""


def test_a_slow_machine_runs_the_first_part_that_fits() -> None:
    longest, shortest = (pick(PARTS, key=lambda name: PARTS[name].minutes) for pick in (max, min))
    fitting = make_plan(factor=1.5, newest=True, part=shortest)
    assert fitting.part, "else the machine of this test is too slow"
    assert make_plan(factor=1.5, newest=True, part=longest).part == ""
    assert choose_plan(factor=1.5, newest=True, parts=[longest, shortest]) == fitting


def test_a_green_part_is_written_with_its_commit_and_time(tmp_path: Path) -> None:
    file = tmp_path / "parts.txt"
    file.write_text("# what it is\ngone 123 2026-01-01T00:00Z\nboards 456 2026-01-01T00:00Z\n")
    record("demo", commit="abc", now=datetime(2026, 2, 3, 4, 5, tzinfo=UTC), file=file)
    assert file.read_text() == "# what it is\nboards 456 2026-01-01T00:00Z\ndemo abc 2026-02-03T04:05Z\n"


@pytest.mark.parametrize(
    ("commit", "commits_ago", "said"),
    [("HEAD", 0, ""), ("HEAD~2", 2, ""), ("HEAD~201", 201, "was green 201 commits ago"), ("none", 0, "does not have")],
)
def test_a_part_that_has_not_run_for_long_is_warned_of(
    repository: Callable[[int], Path], commit: str, commits_ago: int, said: str
) -> None:
    root = repository(commits_ago + 1)
    warnings = list_old({"demo": Green(part="demo", commit=commit, at="2026-01-01T00:00Z")}, root=root)
    assert any("demo" in warning for warning in warnings) == bool(said)
    assert said in "\n".join(warnings)


def test_no_part_is_expected_to_take_longer_than_a_part_may() -> None:
    assert [name for name, part in PARTS.items() if part.minutes > LIMIT_MINUTES] == []


def test_the_parts_of_long_tests_are_all_files_that_have_some() -> None:
    named = {file for part in PARTS.values() if "long" in part.command for file in part.environment["ONLY"].split(",")}
    # `make kills` runs that one
    assert named | {"operator_kills"} == {
        path.stem.removeprefix("test_")
        for path in (ROOT / "tests/e2e").glob("test_*.py")
        if re.search(r"mark\.long\b", path.read_text())
    }


@pytest.mark.timeout(300)
def test_each_name_of_a_list_of_files_selects_a_test() -> None:
    files = [f"tests/e2e/test_{name}.py" for name in sorted({*OLDEST, *LONG_FILES})]
    command = (sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "not long", *files)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)
    assert [file for file in files if f"{file}::" not in done.stdout] == [], done.stdout[-2000:] + done.stderr


def test_a_stage_that_fails_or_takes_too_long_ends_the_run_with_all_its_processes(tmp_path: Path) -> None:
    runner = Runner(factor=1, binaries=None, notes=tmp_path)
    with pytest.raises(Failed, match="bad ended with status 3"):
        runner.run("bad", ("bash", "-c", "exit 3"), minutes=1, newest=False)
    pid = tmp_path / "pid"
    command = ("bash", "-c", f"tail -f /dev/null & echo $! > {pid}; wait")
    with pytest.raises(Failed, match="slow was ended after"):
        runner.run("slow", command, minutes=paced(0.1), newest=False)
    # SIGKILL ends a process a moment after it was sent
    eventually(lambda: not is_running(pid.read_text().strip()))


def is_running(pid: str) -> bool:
    """Return whether a process runs. One that has ended has no command line, until its parent knows."""
    try:
        return bool(Path("/proc", pid, "cmdline").read_bytes())
    except OSError:
        return False


def test_a_stage_sees_the_factor_and_the_other_kubernetes_only_where_it_is_meant(tmp_path: Path) -> None:
    runner = Runner(factor=2.4, binaries=tmp_path, notes=tmp_path)
    for newest in (True, False):
        command = ("bash", "-c", 'echo "$TIME_FACTOR ${KUBERNETES_BINARIES:-none} $ONLY" >> "$STAGES_FILE"')
        runner.run("shows", command, minutes=1, newest=newest, ONLY="pools")
    lines = (tmp_path / "stages").read_text().splitlines()
    assert [line for line in lines if not line.startswith("stage: ")] == [f"2.40 {tmp_path} pools", "2.40 none pools"]


class Recorder(Runner):
    """Runs nothing, and keeps the names of what it was asked to run."""

    ran: tuple[str, ...] = ()

    def run(self, name: str, command: Sequence[str], *, minutes: float, newest: bool, **variables: str) -> None:
        self.ran = (*self.ran, name)


@pytest.mark.parametrize(("part", "runs"), [("installs", True), ("boards", False)])
def test_beside_a_cluster_of_the_developer_only_a_part_without_a_cluster_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, runs: bool
) -> None:
    monkeypatch.setattr(ci, "choose_plan", lambda **given: make_plan(factor=1, newest=True, part=part))
    monkeypatch.setattr(ci, "find_commit", lambda: "")
    runner = Recorder(factor=1, binaries=None, notes=tmp_path)
    ci.run_plan(runner, traces="", keep_cluster=True)
    assert runner.ran == (("test", f"part {part}") if runs else ("test",))


@pytest.fixture
def repository(tmp_path: Path) -> Callable[[int], Path]:
    """Make a repository with so many commits."""
    assert shutil.which("git")

    def make(commits: int) -> Path:
        stream = "".join(
            f"commit refs/heads/main\ncommitter A <a@example.org> {1_700_000_000 + each} +0000\ndata 1\nc\n"
            for each in range(commits)
        )
        subprocess.run(("git", "init", "-q", "-b", "main", tmp_path), check=True, timeout=30)
        subprocess.run(("git", "fast-import", "--quiet"), cwd=tmp_path, input=stream.encode(), check=True, timeout=30)
        return tmp_path

    return make
