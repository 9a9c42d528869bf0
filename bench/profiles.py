"""Where processor time goes: profiles of the API server, the operator and the gateway under one steady load.

The load is that of knee.py: single-use executions on simulated nodes, at random times at one rate. While it lasts, the
API server samples itself (`/debug/pprof/profile`, with the administrator's rights), and py-spy samples operator and
gateway. What a stack does is decided by the rules of activities.py. py-spy needs root, or the right to trace processes.

    KUBECONFIG=... python bench/profiles.py --rate 20 --seconds 30 --png profiles.png --json profiles.json
"""

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import aiohttp
from activities import ACTIVITIES, PARTS, REQUESTS, Rules, compute_shares, list_functions
from harness import TimedExecution, parser, run, table, write_json
from knee import Probe, Side, our_side, run_probe
from pprof import BadProfile, Sample, read_go_profile, read_python_profile
from waits import within

from mcp_exec_common.kube.client import KubeClient

VIEWS: Final[dict[str, tuple[str, Rules]]] = {
    "API server, for": ("kube-apiserver", REQUESTS),
    "API server, does": ("kube-apiserver", ACTIVITIES),
    "operator": ("operator", PARTS),
    "gateway": ("gateway", PARTS),
}
"""What is shown: the process, and how its stacks are divided."""
PYTHON: Final = ("operator", "gateway")
SAMPLES_A_SECOND: Final = 200
LATE_SECONDS: Final = 60.0
"""How long a profiler may take beyond its time."""
MOST_FUNCTIONS: Final = 40
LEAST_SHARE: Final = 3.0
"""Percentage below which an activity has no label in the plot."""


class ProfilerFailed(Exception):
    """A profiler made no profile. The text says why."""


async def profile_server(kube: KubeClient, *, seconds: float) -> list[Sample]:
    """Return the stacks that the API server samples in the next seconds. Raises ProfilerFailed and BadProfile."""
    headers = {"Authorization": token} if (token := await kube.credentials.authorization()) else {}
    timeout = aiohttp.ClientTimeout(total=seconds + LATE_SECONDS)
    params = {"seconds": str(max(1, round(seconds)))}
    async with kube.session.get("/debug/pprof/profile", params=params, headers=headers, timeout=timeout) as response:
        data = await response.read()
        if response.status != 200:
            raise ProfilerFailed(f"the API server answered {response.status}: {data[:300]!r}")
    return read_go_profile(data)


async def profile_python(pid: int, *, seconds: float, folder: Path) -> list[Sample]:
    """Return the stacks of a process in Python in the next seconds. Raises ProfilerFailed and BadProfile."""
    program = shutil.which("py-spy", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        raise ProfilerFailed("there is no py-spy: it is a dependency of the extra `dev`")
    target = folder / f"{pid}.txt"
    process = await asyncio.create_subprocess_exec(
        program, "record", "--pid", str(pid), "--duration", str(max(1, round(seconds))), "--format", "raw",
        "--rate", str(SAMPLES_A_SECOND), "--nolineno", "--output", str(target),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        async with within(seconds + LATE_SECONDS, f"py-spy's profile of process {pid}"):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode or not target.exists():
        raise ProfilerFailed(f"py-spy ended with {process.returncode}: {output.decode(errors='replace')[-500:]}")
    return read_python_profile(target.read_text())


async def load_and_profile(
    side: Side, kube: KubeClient, options: argparse.Namespace, *, folder: Path
) -> tuple[Probe, dict[str, list[Sample]]]:
    """Load the release, and profile its processes meanwhile. Return the load, and the stacks by process."""
    stacks: dict[str, list[Sample]] = {}

    async def load(moments: list[float]) -> Sequence[TimedExecution]:
        seconds = options.seconds
        profilers = {"kube-apiserver": asyncio.create_task(profile_server(kube, seconds=seconds))}
        for name in PYTHON:
            work = profile_python(side.pids[name], seconds=seconds, folder=folder)
            profilers[name] = asyncio.create_task(work)
        runs = await side.load(moments)
        stacks.update({name: await profiler for name, profiler in profilers.items()})
        return runs

    profiled = replace(side, load=load)
    probe = await run_probe(profiled, options.rate, seconds=options.seconds, seed=options.seed, audit_log=None)
    return probe, stacks


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure one load, after a shorter one that warms connections and caches."""
    async with (
        our_side(options, "single") as side,
        KubeClient.connect(kubeconfig=Path(os.environ["KUBECONFIG"])) as kube,
    ):
        if options.warm_up:
            await run_probe(side, options.rate, seconds=options.warm_up, seed=options.seed, audit_log=None)
        with tempfile.TemporaryDirectory(prefix="mcp-exec-bench-") as folder:
            probe, stacks = await load_and_profile(side, kube, options, folder=Path(folder))
    if options.stacks is not None:
        write_stacks(stacks, options.stacks)
    row = probe.row()
    return {
        "load": row,
        "views": {name: divide(stacks[process], rules, spent=row["processor ms"].get(process, 0.0))
                  for name, (process, rules) in VIEWS.items()},
        "functions": {
            process: {
                "own": list_functions(samples, most=MOST_FUNCTIONS),
                "with callees": list_functions(samples, most=2 * MOST_FUNCTIONS, whole=True),
            }
            for process, samples in stacks.items()
        },
    }  # fmt: skip


def write_stacks(stacks: dict[str, list[Sample]], folder: Path) -> None:
    """Write the stacks of each process to a file, in the lines that programs for flame graphs read."""
    folder.mkdir(parents=True, exist_ok=True)
    for process, samples in stacks.items():
        lines = (f"{';'.join(reversed(each.frames))} {each.count}\n" for each in samples)
        (folder / f"{process}.txt").write_text("".join(lines))


def divide(samples: Sequence[Sample], rules: Rules, *, spent: float) -> dict[str, dict[str, float]]:
    """Return share and milliseconds of each activity, if an execution takes `spent` milliseconds in all."""
    shares = compute_shares(samples, rules)
    return {name: {"share": share, "ms": round(spent * share / 100, 2)} for name, share in shares.items()}


def plot(found: dict[str, Any], path: Path) -> None:
    """Draw a bar for each view, divided by activity."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panel = pyplot.subplots(figsize=(13, 1.5 * len(VIEWS) + 0.8))
    colors = pyplot.get_cmap("Set3").colors  # type: ignore[attr-defined]
    names = list(reversed(VIEWS))
    for height, view in enumerate(names):
        left = 0.0
        for index, (activity, each) in enumerate(found["views"][view].items()):
            panel.barh(
                height, each["share"], left=left, color=colors[index % len(colors)], edgecolor="white", height=0.8
            )
            if each["share"] >= LEAST_SHARE:
                label = f"{wrap(activity, width=round(1.5 * each['share']) + 2)}\n{each['share']:.0f} %"
                panel.text(left + each["share"] / 2, height, label, ha="center", va="center", fontsize=6.5)
            left += each["share"]
    spent = {view: found["load"]["processor ms"].get(process, 0.0) for view, (process, _) in VIEWS.items()}
    panel.set_yticks(range(len(names)), [f"{view}\n{spent[view]:.1f} ms" for view in names])
    panel.set(xlim=(0, 100), xlabel=f"% of the process's time at {found['load']['rate']:g} executions a second")
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def wrap(text: str, *, width: int) -> str:
    """Return the text in lines of about so many characters."""
    return "\n".join(textwrap.wrap(text, width, break_long_words=False))


def main() -> None:
    """Run the command. Exits with a message if there is no profile."""
    options = parser(__doc__)
    options.add_argument("--product", type=Path, help="checkout whose operator and gateway run (default: this one)")
    options.add_argument("--rate", type=float, default=20, help="executions per second (default: 20)")
    options.add_argument("--seconds", type=float, default=30, help="length of the load (default: 30)")
    options.add_argument("--warm-up", type=float, default=5, help="seconds of the first load, which does not count")
    options.add_argument("--warm", type=int, help="warm pods (default: 300)")
    options.add_argument("--node-count", type=int, default=50, help="simulated nodes (default: 50)")
    options.add_argument("--seed", type=int, default=1, help="seed of the times of arrival")
    options.add_argument("--png", type=Path, metavar="FILE", help="file for a plot of the shares")
    options.add_argument("--stacks", type=Path, metavar="FOLDER", help="folder for all stacks, a text for each process")
    arguments = options.parse_args()
    try:
        found = run(measure(arguments))
    except (ProfilerFailed, BadProfile) as error:
        raise SystemExit(f"profiles.py: {error}") from error
    for view, rows in found["views"].items():
        print(f"\n{view}: % of its time, and processor ms of an execution")
        print(table({name: dict(row) for name, row in rows.items()}))
    write_json(arguments.json, found)
    if arguments.png is not None:
        plot(found, arguments.png)


if __name__ == "__main__":
    main()
