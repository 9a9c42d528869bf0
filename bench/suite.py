"""All benchmarks one after the other, and their figures next to those of the pages of measurements.

`make bench` runs it with a release: hack/bench sets the variables that programs.py names. What needs a variable that is
not set is skipped, and the end says why. A program that exceeds its limit of time is ended.

    python bench/suite.py --only latency tools
    python bench/suite.py --record    # also write bench/data/figures.json and the pages' tables
    python bench/suite.py --smoke     # each program with its smallest arguments
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from figures import compare, show
from harness import table
from page import FIGURES, PAGE, PAGES, ROOT, TABLES, load_figures, read_tables, record
from programs import BENCHMARKS, FOLDER, Benchmark, Need, choose, choose_smoke, fill_in

from mcp_exec_api.meta import micro_time, now

RESULTS: Final = ROOT / ".cache" / "bench"
SMOKE_SECONDS: Final = 300.0
END_SECONDS: Final = 180.0
"""Time between SIGTERM and SIGKILL: a program removes its objects meanwhile."""
KILL_SECONDS: Final = 10.0
KUBECTL_SECONDS: Final = 30
NO_JSON: Final = frozenset({"tokenizer.py", "record_transcripts.py", "live.py"})
"""Programs without figures for others."""
_WITH_POOLS: Final = frozenset({Need.RELEASE, Need.NODE, Need.AUDIT, Need.EXAMPLES, Need.TOKEN, Need.TYPESCRIPT})


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one benchmark ended."""

    result: str
    """`done`, or a sentence that begins with `failed` or `skipped`."""
    seconds: float = 0.0
    output: str = ""
    """The program's output, if it was captured."""


def build_command(
    name: str, each: Benchmark, *, smoke: bool, target: Path, environment: Mapping[str, str], plots: Path | None = None
) -> list[str]:
    """Return the command that runs a benchmark and writes its figures to a file, and its plot into a folder."""
    arguments = each.smallest or each.arguments if smoke else each.arguments
    command = [sys.executable, str(FOLDER / each.program), *fill_in(arguments, environment)]
    if each.program not in NO_JSON:
        command += ["--json", str(target)]
    return command + ([each.draws, str(plots / f"{name}.png")] if each.draws and plots is not None else [])


def run_limited(
    command: list[str],
    *,
    seconds: float,
    capture: bool,
    environment: Mapping[str, str],
    end_seconds: float = END_SECONDS,
) -> Outcome:
    """Run a command. After its limit it gets SIGTERM, then it and all that it started get SIGKILL."""
    started, result = time.monotonic(), ""
    with tempfile.TemporaryFile() as file:
        output = file if capture else None
        process = subprocess.Popen(
            command, cwd=ROOT, env=dict(environment), stdout=output, stderr=output, start_new_session=True
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            result = f"failed: it did not end within {seconds:g} s"
        finally:
            end(process, seconds=end_seconds)
        file.seek(0)
        text = file.read().decode(errors="replace")
    if not result:
        result = "done" if process.returncode == 0 else f"failed with status {process.returncode}"
    return Outcome(result=result, seconds=time.monotonic() - started, output=text)


def end(process: "subprocess.Popen[bytes]", *, seconds: float) -> None:
    """End a process and its group, unless it has ended."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(KILL_SECONDS)


def kubectl(*words: str) -> str:
    """Run kubectl and return its output."""
    command = ["kubectl", *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=KUBECTL_SECONDS)
    return done.stdout


@contextmanager
def quiet_pools() -> Iterator[None]:
    """Keep no warm sandboxes in the release's pools meanwhile: they use the machine's resources even while idle."""
    pools = json.loads(kubectl("get", "sandboxpools", "--namespace", "agents", "--output", "json"))["items"]
    sizes = {pool["metadata"]["name"]: pool["spec"].get("warm", {}).get("min", 0) for pool in pools}

    def scale(name: str, size: int) -> None:
        patch = json.dumps({"spec": {"warm": {"min": size}}})
        kubectl("patch", "sandboxpool", name, "--namespace", "agents", "--type", "merge", "--patch", patch)

    try:
        for name in sizes:
            scale(name, 0)
        yield
    finally:
        for name, size in sizes.items():
            try:
                scale(name, size)
            except subprocess.SubprocessError as error:  # the figures are there all the same
                print(f"the pool {name} keeps no warm pods: {error}", flush=True)


def find_missing(each: Benchmark, environment: Mapping[str, str]) -> str:
    """Return why a benchmark can't run here, or an empty text."""
    if each.need is Need.NOTHING or environment.get(each.need.value):
        return ""
    return f"skipped: {each.need.value} is not set"


def run_all(
    chosen: Mapping[str, Benchmark], *, smoke: bool, environment: Mapping[str, str], plots: Path | None = None
) -> dict[str, Outcome]:
    """Run benchmarks in turn. Those that need the release's pools run first, the others without warm sandboxes."""
    outcomes: dict[str, Outcome] = {}

    def run_each(names: list[str]) -> None:
        for name in names:
            each, target = chosen[name], RESULTS / f"{name}.json"
            target.unlink(missing_ok=True)
            if missing := find_missing(each, environment):
                outcomes[name] = Outcome(result=missing)
                continue
            print(f"==> {name}", flush=True)
            command = build_command(name, each, smoke=smoke, target=target, environment=environment, plots=plots)
            seconds = SMOKE_SECONDS if smoke else each.limit
            own = {**environment, **({} if smoke else each.environment)}
            outcomes[name] = run_limited(command, seconds=seconds, capture=smoke, environment=own)
            print(f"==> {name}: {outcomes[name].result} after {outcomes[name].seconds:.0f} s", flush=True)
            if not outcomes[name].result.startswith("done"):
                print(outcomes[name].output[-3000:], flush=True)

    RESULTS.mkdir(parents=True, exist_ok=True)
    run_each([name for name, each in chosen.items() if each.need in _WITH_POOLS])
    rest = [name for name, each in chosen.items() if each.need not in _WITH_POOLS]
    if rest and not smoke and environment.get(Need.RELEASE.value):
        with quiet_pools():
            run_each(rest)
    else:
        run_each(rest)
    return outcomes


def load_results(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """Return the figures of the benchmarks that are done."""
    paths = {name: RESULTS / f"{name}.json" for name, outcome in outcomes.items() if outcome.result == "done"}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}


def print_comparison(results: Mapping[str, Any], recorded: Mapping[str, Any]) -> None:
    """Print the compared figures of the page, the new ones and their ratio."""
    rows = {}
    for name, now_rows in read_tables(results).items():
        for label, old, new in compare(TABLES[name], recorded["tables"].get(name, {"rows": {}})["rows"], now_rows):
            ratio = f"{new / old:.2f}" if old else ""
            rows[f"{name}, {label}"] = {"page": show(old), "now": show(new), "now / page": ratio}
    if rows:
        print("\nThe recorded figures and now. Times differ by machine; compare ratios, shares and counts.")
        print(table(rows))


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--only", nargs="+", default=[], metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    found.add_argument("--smoke", action="store_true", help="run each program with its smallest arguments")
    found.add_argument("--list", action="store_true", help="print the chosen benchmarks and run none")
    found.add_argument("--record", action="store_true", help="write the figures to the pages")
    options = found.parse_args()
    if options.record and options.smoke:
        found.error("--record: not with --smoke")
    try:
        options.chosen = (choose_smoke if options.smoke else choose)(" ".join(options.only))
    except ValueError as error:
        found.error(str(error))
    return options


def main() -> None:
    """Run the command. Exits with status 1 if a benchmark failed."""
    options = parse_arguments()
    if options.list:
        print(*options.chosen, sep="\n")
        return
    # a program that runs is ended, and the pools have their sizes again
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="mcp-exec-bench-") as out:
        environment = {**os.environ, "BENCH_OUT": out}
        plots = PAGE.parent if options.record else None
        outcomes = run_all(options.chosen, smoke=options.smoke, environment=environment, plots=plots)
    if not options.smoke:
        results = load_results(outcomes)
        print_comparison(results, load_figures())
        if options.record:
            machine = {"cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
            renewed = record(results, at=micro_time(now()), machine=machine)
            written = ", ".join(str(path.relative_to(ROOT)) for path in (*PAGES, FIGURES))
            print(f"\nrenewed in {written}: {', '.join(renewed)}")
            if kept := [name for name in TABLES if name not in renewed]:
                print(f"kept, because not all of their benchmarks ran: {', '.join(kept)}")
    print("\n" + table({name: {"s": f"{each.seconds:.0f}", "": each.result} for name, each in outcomes.items()}))
    if any(each.result.startswith("failed") for each in outcomes.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
