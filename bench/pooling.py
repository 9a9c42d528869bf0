"""Duration of the tasks of examples/tasks with warm pods, compared with cold starts in the same run.

The pool has no warm pods in the first half, so that each execution waits for a pod of its own, and --warm of them in
the second, which are back before each task. The ToolServers must be there: `make examples` applies them.

    KUBECONFIG=... python bench/pooling.py --sequence 01,03,01,07,03,05,08
    KUBECONFIG=... python bench/pooling.py --example 01 -n 5
    KUBECONFIG=... python bench/pooling.py --all -v --json pooling.json
"""

import argparse
import asyncio
import contextlib
import importlib
import io
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness import BenchCluster, connect_release, parser, run, summary, table, write_json
from waits import within

from mcp_exec_client import Client, Execution

TASKS = Path(__file__).parents[1] / "examples" / "tasks"
Task = Callable[[Client], list[Execution]]
Samples = dict[str, list[float]]
TASK_SECONDS = 300.0


def find_tasks() -> dict[str, Path]:
    """Return the tasks by name."""
    found = sorted(path for path in TASKS.glob("*.py") if "    run_task(task)\n" in path.read_text())
    return {path.stem: path for path in found}


def choose(options: argparse.Namespace) -> list[str]:
    """Return the names of the tasks in the order of their runs. Raises SystemExit for an unknown name."""
    names = list(find_tasks())
    if options.all:
        return names
    asked = [options.example] * options.number if options.example else options.sequence.split(",")
    chosen = []
    for part in asked:
        match = next((name for name in names if name.startswith(part.strip())), None)
        if match is None or not part.strip():
            raise SystemExit(f"no task begins with {part!r}; they are {', '.join(names)}")
        chosen.append(match)
    return chosen


def time_task(client: Client, name: str, *, verbose: bool) -> float:
    """Run a task and return its milliseconds. What it prints is shown only if `verbose`."""
    task: Task = importlib.import_module(name).task
    printed = io.StringIO()
    with contextlib.redirect_stdout(sys.stdout if verbose else printed):
        start = time.perf_counter()
        runs = task(client)
        elapsed = (time.perf_counter() - start) * 1000
    for each in runs:
        each.raise_for_failure()
        if verbose:
            print(f"  {each.name} {each.start} {each.duration}: {each.stdout.strip() or each.result}")
    return elapsed


async def measure(bench: BenchCluster, names: Sequence[str], *, pool: str, warm: int, verbose: bool) -> Samples:
    """Run the tasks one after the other, and return the milliseconds of each by its name."""
    samples: Samples = defaultdict(list)
    key = bench.headers["Authorization"].removeprefix("Bearer ")
    await bench.scale(pool, warm)
    for name in names:
        await bench.wait_until_settled(pool)
        with Client(bench.gateway, api_key=key) as client:
            async with within(TASK_SECONDS, f"the end of the task {name}"):
                elapsed = await asyncio.to_thread(time_task, client, name, verbose=verbose)
        samples[name].append(elapsed)
        if verbose:
            print(f"{name}: {elapsed:.0f} ms with {warm} warm pods")
    return samples


async def compare(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Measure cold and warm. The pool has its size again afterwards."""
    names = choose(options)
    async with connect_release() as bench:
        before = (await bench.pool(options.pool))["spec"]["warm"]["min"]
        try:
            cold = await measure(bench, names, pool=options.pool, warm=0, verbose=options.verbose)
            warm = await measure(bench, names, pool=options.pool, warm=options.warm, verbose=options.verbose)
        finally:
            await bench.scale(options.pool, before)
    rows: dict[str, dict[str, Any]] = {}
    for title, chosen in [*((name, [name]) for name in sorted(cold)), ("all", sorted(cold))]:
        one, other = ([value for name in chosen for value in found[name]] for found in (cold, warm))
        ratio = round(summary(one)["p50"] / summary(other)["p50"], 1)
        rows[f"{title}, cold"] = {**summary(one), "cold/warm": ""}
        rows[f"{title}, warm"] = {**summary(other), "cold/warm": ratio}
    write_json(options.json, {"summary": rows, "samples": {"cold": cold, "warm": warm}})
    return rows


def main() -> None:
    """Run the command."""
    options = parser(__doc__, pool="default")
    what = options.add_mutually_exclusive_group(required=True)
    what.add_argument("--sequence", metavar="01,03,...", help="tasks in this order, by the begin of their names")
    what.add_argument("--example", metavar="NAME", help="one task")
    what.add_argument("--all", action="store_true", help="all tasks, once each")
    options.add_argument("-n", dest="number", type=int, default=1, help="how often to run the task of --example")
    options.add_argument("--warm", type=int, default=2, help="warm pods of the second half (default: 2)")
    options.add_argument("-v", dest="verbose", action="store_true", help="print each execution and its output")
    sys.path.insert(0, str(TASKS))
    rows = run(compare(options.parse_args()))
    print(f"\nms of a task, as its client measures it\n{table(rows)}")


if __name__ == "__main__":
    main()
