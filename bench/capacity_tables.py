"""The tables of docs/internals/capacity.md. `figures.py` says what a table is."""

from collections.abc import Mapping
from typing import Final

from capacity_model import read_cores, read_etcd
from figures import FigureTable, Results, Rows

_MEMORY: Final = {
    "API server": "{API server MB}", "its live heap": "{API server live MB}", "etcd": "{etcd MB}",
    "without its file": "{etcd's own MB}", "database": "{database MB}", "used of it": "{used MB}",
    "operator": "{operator MB}", "gateway": "{gateway MB}",
}  # fmt: skip
_COMPARED: Final = ("API server MB", "etcd's own MB", "used MB", "operator MB", "gateway MB")


def _table(run: str, head: str, columns: Mapping[str, str], compared: tuple[str, ...] = _COMPARED) -> FigureTable:
    """Return a table of the rows of a run that have one of the compared fields."""

    def read(results: Results) -> Rows:
        return {label: row for label, row in results[run]["rows"].items() if row.keys() & set(compared)}

    return FigureTable(runs=(run,), head=head, columns=columns, read=read, compared=compared)


CAPACITY_TABLES: Final[Mapping[str, FigureTable]] = {
    "stored executions": _table("capacity-executions", "stored executions, MB", _MEMORY),
    "executions stored and served": _table(
        "capacity-executions",
        "stored executions",
        {
            "start of the operator, s": "{operator starts s}", "of the gateway, s": "{gateway starts s}",
            "gateway's list of 100, ms": "{list ms}", "`kubectl get` of all, s": "{kubectl get s}",
            "warm run, p50 ms": "{p50 ms}",
        },
        ("operator starts s", "kubectl get s", "p50 ms"),
    ),
    "pods": _table(
        "capacity-pods",
        "warm pods, MB",
        {**_MEMORY, "scheduler": "{scheduler MB}", "controllers": "{controller manager MB}",
         "start of the operator, s": "{known s}"},
    ),
    "namespaces": _table(
        "capacity-namespaces", "served namespaces, MB", {**_MEMORY, "broker": "{broker MB}"}
    ),
    "namespaces served": _table(
        "capacity-namespaces",
        "served namespaces",
        {
            "watches of operator and gateway": "{watches}", "of the broker": "{broker's watches}",
            "start of the operator, s": "{operator starts s}",
            "of the gateway, s": "{gateway starts s}", "of the broker, s": "{broker starts s}",
        },
        ("watches", "broker's watches"),
    ),
    "sessions": _table(
        "capacity-sessions",
        "sessions without a pod, MB",
        {**_MEMORY, "`kubectl get` of all, s": "{kubectl get s}"},
    ),
    "tools of a namespace": _table(
        "capacity-tools",
        "tools of a namespace",
        {
            "catalog, kB": "{catalog kB}", "indexed, ms": "{indexed ms}", "index, MB": "{index MB}",
            "a search, ms": "{search ms}", "wrappers in Python, s / kB": "{python s} / {python kB}",
            "in TypeScript, s / kB": "{typescript s} / {typescript kB}", "broker, MB": "{broker MB}",
            "listed, s": "{broker lists s}",
        },
        ("catalog kB", "index MB", "broker MB"),
    ),
    "cores of a control plane": FigureTable(
        runs=("sustained",),
        head="cores of the control plane",
        columns={
            "one release, single use, executions/s": "{single rate} ({single bound})",
            "several releases": "{single rate of all} with {single releases} ({single bound of all})",
            "one release, with reuse": "{reuse rate} ({reuse bound})",
            "several, with reuse": "{reuse rate of all} with {reuse releases} ({reuse bound of all})",
        },
        read=read_cores,
        compared=("single rate", "reuse rate"),
    ),
    "etcd": FigureTable(
        runs=("capacity-executions",),
        head="etcd's database",
        columns={
            "executions stored at rest": "{stored}", "executions/s with a TTL of 1 hour": "{rate at 3600}",
            "of 10 minutes": "{rate at 600}", "of 1 minute": "{rate at 60}",
        },
        read=read_etcd,
        compared=("stored", "rate at 3600"),
    ),
}  # fmt: skip
