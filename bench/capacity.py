"""Capacity: memory of a control plane and of a release for numbers of objects, each alone, and a line through them.

Each quantity has a control plane of its own, of the executables of KUBERNETES_BINARIES, with simulated nodes and this
checkout's operator and gateway as processes. Memory is resident, after a rest. Numbers beyond the largest measured one
are the line's values, and are marked as extrapolated.

    executions  finished executions, stored in one namespace; then their deletion by the operator
    pods        warm pods of one pool
    namespaces  served namespaces, each with a pool; with a broker
    sessions    sessions without a pod
    tools       tools of one namespace; needs no control plane

    KUBERNETES_BINARIES=DIR python bench/capacity.py --what executions --json FILE
"""

import argparse
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from capacity_served import measure_namespaces, measure_pods
from capacity_stored import Measurement, measure_executions, measure_sessions
from capacity_tools import measure_tools
from fit import extend_rows
from harness import parser, run, table, write_json
from plane import plane_running
from tests.support.control_plane import ControlPlane

MEMORY: Final = ("API server MB", "API server live MB", "etcd MB", "etcd's own MB", "etcd live MB", "operator MB",
                 "gateway MB")  # fmt: skip
DATABASE: Final = ("database MB", "used MB")


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """One quantity: the numbers that are measured, those that are extrapolated, and the fields with a line."""

    sizes: tuple[int, ...]
    beyond: tuple[int, ...]
    fields: tuple[str, ...]
    """Memory, sizes and counts. Times depend on what else the machine does, so that a line would say nothing."""
    measure: Callable[[ControlPlane, argparse.Namespace], Awaitable[Measurement]] | None = None
    """None if no control plane is needed."""


QUANTITIES: Final[Mapping[str, Quantity]] = {
    "executions": Quantity(
        sizes=(0, 5_000, 10_000, 25_000, 50_000),
        beyond=(100_000, 200_000),
        fields=(*MEMORY, *DATABASE),
        measure=measure_executions,
    ),
    "pods": Quantity(
        sizes=(0, 1_000, 2_500, 5_000),
        beyond=(10_000, 20_000),
        fields=(*MEMORY, *DATABASE, "scheduler MB", "controller manager MB"),
        measure=measure_pods,
    ),
    "namespaces": Quantity(
        sizes=(1, 50, 100, 250, 500),
        beyond=(1_000, 2_000),
        fields=(*MEMORY, *DATABASE, "broker MB", "watches", "broker's watches"),
        measure=measure_namespaces,
    ),
    "sessions": Quantity(
        sizes=(0, 1_000, 2_500, 5_000, 10_000),
        beyond=(20_000, 50_000),
        fields=(*MEMORY, *DATABASE),
        measure=measure_sessions,
    ),
    "tools": Quantity(
        sizes=(100, 250, 500, 1_000),
        beyond=(2_000, 5_000),
        fields=("catalog kB", "index MB", "python kB", "typescript kB", "broker MB"),
    ),
}  # fmt: skip


def measure(options: argparse.Namespace) -> Measurement:
    """Measure a quantity, with a control plane of its own if it needs one."""
    work = QUANTITIES[options.what].measure
    if work is None:
        return run(_wait_for(measure_tools(options)))
    with plane_running() as plane:
        os.environ["KUBECONFIG"] = str(plane.kubeconfig)
        return run(_wait_for(work(plane, options)))


async def _wait_for(work: Awaitable[Measurement]) -> Measurement:
    return await work


def build_rows(quantity: Quantity, found: Measurement) -> dict[str, dict[str, Any]]:
    """Return the measured rows, those of what is left afterwards, and the line's."""
    measured = {f"{count:,}": row for count, row in found.steps.items()}
    return measured | found.after | extend_rows(found.steps, fields=quantity.fields, numbers=quantity.beyond)


def main() -> None:
    """Run the command."""
    options = parser(__doc__)
    options.add_argument("--what", choices=QUANTITIES, required=True, help="the quantity to measure")
    options.add_argument("--sizes", type=int, nargs="+", help="numbers of things (default: by quantity)")
    options.add_argument("--node-count", type=int, default=50, help="simulated nodes (default: 50)")
    options.add_argument("--settle-seconds", type=float, default=25, help="rest before memory is read (default: 25)")
    options.add_argument("--warm", type=int, default=20, help="warm pods for the runs of `executions` (default: 20)")
    options.add_argument("--runs", type=int, default=200, help="runs that show what one adds to etcd (default: 200)")
    options.add_argument("--rate", type=float, default=5, help="their executions per second (default: 5)")
    options.add_argument("--probes", type=int, default=20, help="runs whose median is read (default: 20)")
    options.add_argument("--probe-rate", type=float, default=2, help="their executions per second (default: 2)")
    arguments = options.parse_args()
    quantity = QUANTITIES[arguments.what]
    arguments.sizes = sorted(set(arguments.sizes or quantity.sizes))
    found = measure(arguments)
    rows = build_rows(quantity, found)
    print(table(rows))
    print(found.more)
    write_json(arguments.json, {"what": arguments.what, "rows": rows, "more": found.more})


if __name__ == "__main__":
    main()
