"""Run all tests, as continuous integration does, and one of the checks that take minutes.

    .ci/run                   what fits into the limit of CI on this machine
    .ci/run --plan [FACTOR]   print what that is, for this machine or for one that is so many times slower
    PART=NAME .ci/run         run one part alone, and write its commit into .ci/parts.txt if it ends green

A test that fails runs once more. The last lines are the time of each stage and the tests that ran again: each of these
has a defect, in the product or in itself.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Final

from hack.ci.parts import GREEN, LIMIT_MINUTES, PARTS, ROOT, Green, find_commit, list_by_age, list_old, record
from hack.ci.plan import LONG_FILES, OLDEST, choose_plan, measure_factor

_END_SECONDS: Final = 60.0
"""How long a command that is over its limit may take to end."""


class Failed(Exception):
    """A stage failed."""


@dataclass(frozen=True, kw_only=True)
class Runner:
    """The stages of one run, which end with the first that fails."""

    factor: float
    binaries: Path | None
    """The folder of another Kubernetes."""
    notes: Path
    """A folder for the files of stages and of tests that ran again."""
    started: float = field(default_factory=monotonic)

    def run(self, name: str, command: Sequence[str], *, minutes: float, newest: bool, **variables: str) -> None:
        """Run a command within a limit. Raises Failed."""
        start, environment = monotonic(), self._build_environment(newest=newest, variables=variables)
        print(f"ci: {name}: {' '.join(command)}", flush=True)
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            status = process.wait(minutes * 60)
        except subprocess.TimeoutExpired:
            self._end(process)
            raise Failed(f"{name} was ended after {minutes:.0f} minutes") from None
        except BaseException:
            self._end(process)
            raise
        took = monotonic() - start
        with (self.notes / "stages").open("a") as file:
            file.write(f"stage: {name} {took // 60:.0f} min {took % 60:.0f} s\n")
        if status:
            raise Failed(f"{name} ended with status {status}")

    def remove_cluster(self, *, traces: str) -> None:
        """Remove the cluster of this checkout. Raises Failed if it leaves something behind."""
        made = ROOT / ".cache" / "cluster"
        if not made.exists():
            return
        provider = made.read_text().strip()
        self.run("down", ("make", "--no-print-directory", "down"), minutes=10, newest=False)
        # Only new traces count: `down` may also remove those of a cluster that was killed earlier.
        left = sorted(set(find_traces().splitlines()) - set(traces.splitlines()))
        if provider == "devcluster" and left:
            raise Failed("devcluster left behind: " + ", ".join(left))

    def print_end(self, status: int) -> None:
        """Print the time of each stage, the tests that ran again, and the status."""
        reruns = (self.notes / "reruns").read_text().splitlines()
        print((self.notes / "stages").read_text(), end="")
        for test in reruns:
            print(f"rerun: {test}")
        took = (monotonic() - self.started) / 60
        print(f"ci: status {status} after {took:.0f} min, tests that ran again: {len(reruns)}", flush=True)

    def _build_environment(self, *, newest: bool, variables: Mapping[str, str]) -> dict[str, str]:
        environment = {name: value for name, value in os.environ.items() if name != "KUBERNETES_BINARIES"}
        options = ("--reruns=1", "--rerun-show-tracebacks", os.environ.get("PYTEST_ADDOPTS", ""))
        environment |= {
            "STAGES_FILE": str(self.notes / "stages"),
            "RERUNS_FILE": str(self.notes / "reruns"),
            "PYTEST_ADDOPTS": " ".join(options).strip(),
            "TIME_FACTOR": f"{max(1.0, self.factor):.2f}",
        }
        if newest and self.binaries is not None:
            environment["KUBERNETES_BINARIES"] = str(self.binaries)
        return {**environment, **variables}

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        """End a command with all that it started in its session."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
                process.wait(_END_SECONDS)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue


def find_traces() -> str:
    """Return what of clusters is on this machine."""
    return subprocess.run(
        (ROOT / "hack/devcluster/traces",), capture_output=True, text=True, check=True, timeout=120
    ).stdout


def run_part(runner: Runner, name: str, *, traces: str) -> None:
    """Run one part, and record that it ended green. Raises Failed."""
    part, commit = PARTS[name], find_commit()
    limit = LIMIT_MINUTES * max(1.0, runner.factor)
    runner.run(f"part {name}", part.command, minutes=limit, newest=part.newest, **part.environment)
    if part.cluster:
        runner.remove_cluster(traces=traces)
    if commit:
        record(name, commit=commit, now=datetime.now(UTC))
    else:
        print(f"ci: {GREEN.relative_to(ROOT)} is not written, because this checkout has uncommitted changes")


def run_plan(runner: Runner, *, traces: str, keep_cluster: bool) -> None:
    """Run what fits on this machine. Raises Failed."""
    green = Green.read_all(GREEN.read_text())
    plan = choose_plan(factor=runner.factor, newest=runner.binaries is not None, parts=list_by_age(green))
    print("\n".join(f"ci: {line}" for line in plan.describe()), flush=True)
    variables = {} if plan.long_files else {"WITHOUT": ",".join(LONG_FILES)}
    if plan.coverage:
        variables["MEASURED"] = "yes"
    runner.run("test", ("make", "--no-print-directory", "test"), minutes=85, newest=plan.newest, **variables)
    # Another Kubernetes needs a devcluster of its own, as most parts do.
    made = ROOT / ".cache" / "cluster"
    own_cluster = not keep_cluster and made.exists() and made.read_text().strip() == "devcluster"
    if own_cluster:
        runner.remove_cluster(traces=traces)
    else:
        print("ci: Kubernetes 1.20, and a part that makes a cluster, are skipped: they need a devcluster of their own")
    if own_cluster and plan.newest and plan.oldest:
        command = ("make", "--no-print-directory", "e2e")
        runner.run("oldest Kubernetes", command, minutes=60, newest=False, ONLY=",".join(OLDEST))
        runner.remove_cluster(traces=traces)
    if plan.part and (own_cluster or not PARTS[plan.part].cluster):
        run_part(runner, plan.part, traces=traces)
    for warning in list_old(Green.read_all(GREEN.read_text())):
        print(f"ci: warning: {warning}")


def find_binaries() -> Path | None:
    """Return the folder of another Kubernetes: KUBERNETES_BINARIES, or shared/tools next to the checkout."""
    folder = Path(os.environ.get("KUBERNETES_BINARIES") or ROOT.parent / "shared" / "tools")
    if not folder.is_dir():
        print(f"ci: the newest Kubernetes is left out, because there is no folder {folder} (KUBERNETES_BINARIES)")
        return None
    return folder.resolve()


def main() -> int:
    """Run, and return the exit status."""
    parser = argparse.ArgumentParser(prog=".ci/run", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--plan", nargs="?", type=float, const=0.0, metavar="FACTOR", help="print what would run")
    arguments = parser.parse_args()
    part = os.environ.pop("PART", "")
    if part and part not in PARTS:
        parser.error(f"PART must be one of {', '.join(PARTS)}, not {part}")
    binaries, factor = find_binaries(), arguments.plan or measure_factor()
    if arguments.plan is not None:
        parts = list_by_age(Green.read_all(GREEN.read_text()))
        plan = choose_plan(factor=factor, newest=binaries is not None, parts=parts)
        print("\n".join(plan.describe()))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory() as folder:
        runner, status = Runner(factor=factor, binaries=binaries, notes=Path(folder)), 1
        for name in ("stages", "reruns"):
            (runner.notes / name).touch()
        # A cluster that the checkout had before stays.
        keep_cluster, traces = (ROOT / ".cache" / "cluster").exists(), find_traces()
        try:
            if part:
                run_part(runner, part, traces=traces)
            else:
                run_plan(runner, traces=traces, keep_cluster=keep_cluster)
            status = 0
        except Failed as error:
            print(f"ci: {error}", file=sys.stderr, flush=True)
        finally:
            if not keep_cluster:
                try:
                    runner.remove_cluster(traces=traces)
                except Failed as error:
                    print(f"ci: {error}", file=sys.stderr, flush=True)
                    status = 1
            runner.print_end(status)
        return status


if __name__ == "__main__":
    sys.exit(main())
