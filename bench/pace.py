"""Whether an execution costs more than in the release before: processor time and writes, in turns in one run.

Each round loads both on simulated nodes, the one first in turns (ABBA), at one rate below the knee. The medians of the
rounds are compared. Fails if an execution takes a tenth more processor time of operator, gateway, API server and etcd,
or a tenth more writes. The control plane is a real one, of the executables of KUBERNETES_BINARIES.

    KUBERNETES_BINARIES=DIR python bench/pace.py --before FOLDER --json pace.json      (make pace)
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from harness import ROOT, parser, table, write_json
from tests.support.control_plane import ControlPlane, running_control_plane

PARTS: Final = ("operator", "gateway", "kube-apiserver", "etcd")
ROUND_SECONDS: Final = 400


def run_round(plane: ControlPlane, checkout: Path, options: argparse.Namespace, *, folder: Path) -> Mapping[str, Any]:
    """Load the release of a checkout once, and return the figures of the load. Raises RuntimeError if it fails."""
    applied = plane.kubectl("apply", "--server-side", "--force-conflicts", "--filename", str(checkout / "crds"))
    if applied.returncode:
        raise RuntimeError(f"the definitions of {checkout} were not applied: {applied.stderr}")
    target = folder / "knee.json"
    command = [
        sys.executable, str(Path(__file__).with_name("knee.py")), "--modes", "single", "--sides", "mcp-exec",
        "--probes", "1", "--first", str(options.rate), "--seconds", str(options.seconds), "--warm", str(options.warm),
        "--node-count", str(options.node_count), "--p99", "100000", "--audit-log", str(plane.audit_log),
        "--product", str(checkout), "--json", str(target),
    ]  # fmt: skip
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
    subprocess.run(command, check=True, env=environment, timeout=ROUND_SECONDS)
    found: dict[str, Any] = json.loads(target.read_text())["single"]["mcp-exec"]["probes"][0]
    if found["failed"]:
        raise RuntimeError(f"{found['failed']} executions of {checkout} failed: {found['problems']}")
    return found


def summarize(rounds: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the medians of the rounds, of an execution."""
    found = {f"{part}, processor ms": median(each["processor ms"][part] for each in rounds) for part in PARTS}
    spent = median(sum(each["processor ms"][part] for part in PARTS) for each in rounds)
    writes = median(sum(each["writes"].values()) for each in rounds)
    return {**found, "processor ms": round(spent, 2), "writes": round(writes, 2),
            "p99 ms": median(each["p99"] for each in rounds)}  # fmt: skip


def compare(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return a row for each figure, with the ratio of now to before."""
    return {
        name: {"before": before[name], "now": now[name], "ratio": round(now[name] / before[name], 3)} for name in before
    }


def list_worse(rows: Mapping[str, Mapping[str, float]], *, worse: float) -> list[str]:
    """Return a sentence for each figure whose ratio is more than `worse`."""
    return [
        f"{name} of an execution: {rows[name]['now']} instead of {rows[name]['before']}"
        for name in ("processor ms", "writes")
        if rows[name]["ratio"] > worse
    ]


def main() -> None:
    """Run the command. Exits with status 1 if an execution costs more."""
    options = parser(__doc__)
    options.add_argument("--before", type=Path, required=True, help="checkout of the release before")
    options.add_argument("--rate", type=float, default=8, help="executions per second (default: 8)")
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--warm", type=int, default=100, help="warm pods (default: 100)")
    options.add_argument("--node-count", type=int, default=50, help="simulated nodes (default: 50)")
    options.add_argument("--worse", type=float, default=1.1, help="ratio of now to before that fails (default: 1.1)")
    arguments = options.parse_args()
    rounds: dict[str, list[Mapping[str, Any]]] = {"before": [], "now": []}
    checkouts = {"before": arguments.before.resolve(), "now": ROOT}
    with tempfile.TemporaryDirectory(prefix="mcp-exec-bench-") as name:
        folder = Path(name)
        with running_control_plane(folder / "plane", controllers=True, scheduler=True, audit=True) as plane:
            for number in range(arguments.rounds):
                for side in ("before", "now") if number % 2 == 0 else ("now", "before"):
                    rounds[side].append(run_round(plane, checkouts[side], arguments, folder=folder))
    rows = compare(summarize(rounds["before"]), summarize(rounds["now"]))
    print(table(rows))
    write_json(arguments.json, {"rate": arguments.rate, "rows": rows, "rounds": rounds})
    if worse := list_worse(rows, worse=arguments.worse):
        raise SystemExit("\n".join(worse))


if __name__ == "__main__":
    main()
