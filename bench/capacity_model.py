"""A model of what a control plane carries: executions a second by its cores, and by etcd's size. Nothing is measured.

It computes with measured figures: the processor time of each part for an execution (bench/sustained.py), and what an
execution adds to etcd (bench/capacity.py). Its assumptions are the constants of this module.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from figures import Results, Row, Rows, read_processor

CORES: Final = (1, 2, 4, 16, 64)
MODES: Final = ("single", "reuse")
USED_SHARE: Final = 0.6
"""Share of a core or of all cores that is used while 99 of 100 executions end within 250 ms: 30 executions a second
with single use take 62 % of two cores, and hold it; 45 take 92 %, and do not."""
SERIAL_SHARE: Final = 0.05
"""Assumed share of the API server's time that does not spread over cores: locks, garbage collection, the order of each
kind's watch cache. By Amdahl's law, 64 cores then do the work of 15."""
ONE_CORE: Final = ("etcd", "scheduler", "controller manager")
"""Parts whose work is one loop, or bounded as if it were."""
NO_PART: Final = frozenset({"simulator", "client", "kubelet", "all"})
"""Rows of the processor's table that are no part of a control plane: the benchmark's, and the nodes' own."""
MAX_RELEASES: Final = 64
QUOTAS: Final[Mapping[str, float]] = {
    "2 GiB, etcd's default quota": 2 * 2**30 / 1e6, "8 GiB, its suggested maximum": 8 * 2**30 / 1e6,
}  # fmt: skip
"""Sizes of etcd's database in MB."""
FULL_SHARE: Final = 0.8
"""Share of a quota that is planned for: at the quota, etcd refuses each write."""
HISTORY_SECONDS: Final = 600
"""Longest time that a former state is kept: the API server compacts every 5 minutes what is older than 5 minutes."""
TTLS: Final = (3600, 600, 60)


@dataclass(frozen=True, kw_only=True)
class Bound:
    """The rate that one part allows."""

    part: str
    rate: float
    """Executions a second."""


def speed_up(cores: int, *, serial: float = SERIAL_SHARE) -> float:
    """Return by how much faster so many cores are than one, by Amdahl's law."""
    return 1 / (serial + (1 - serial) / cores)


def list_bounds(spent: Mapping[str, float], *, cores: int, releases: int) -> list[Bound]:
    """Return the bounds of the rate. `spent` is the processor time of an execution by part, in milliseconds.

    An operator is one process that uses one core, and a release has one that leads; a gateway is one process for each
    replica, and a release has as many replicas as it needs. etcd writes one after the other: all its time counts as one
    core's, which is less than it can do.
    """
    core = 1000 * USED_SHARE
    found = [
        Bound(part="all cores", rate=cores * core / sum(spent.values())),
        Bound(part="API server", rate=speed_up(cores) * core / spent["API server"]),
        Bound(part="operator", rate=releases * core / spent["operator"]),
    ]
    return found + [Bound(part=part, rate=core / spent[part]) for part in ONE_CORE if spent.get(part)]


def find_lowest(spent: Mapping[str, float], *, cores: int, releases: int) -> Bound:
    """Return the bound that is reached first."""
    return min(list_bounds(spent, cores=cores, releases=releases), key=lambda bound: bound.rate)


def find_releases(spent: Mapping[str, float], *, cores: int) -> int:
    """Return the lowest number of releases whose operators bound nothing."""
    return next(
        (number for number in range(1, MAX_RELEASES)
         if find_lowest(spent, cores=cores, releases=number).part != "operator"),
        MAX_RELEASES,
    )  # fmt: skip


def model_cores(processor: Rows) -> Rows:
    """Return a row for each number of cores. `processor` has milliseconds by part and mode."""
    return {f"{cores:,}": {"cores": cores} | _describe(processor, cores) for cores in CORES}


def _describe(processor: Rows, cores: int) -> Row:
    row: Row = {}
    for mode in MODES:
        spent = {part: each[mode] for part, each in processor.items() if part not in NO_PART}
        one = find_lowest(spent, cores=cores, releases=1)
        number = find_releases(spent, cores=cores)
        several = find_lowest(spent, cores=cores, releases=number)
        row |= {
            f"{mode} rate": round(one.rate, 1), f"{mode} bound": one.part, f"{mode} releases": number,
            f"{mode} rate of all": round(several.rate, 1), f"{mode} bound of all": several.part,
        }  # fmt: skip
    return row


def model_etcd(*, stored_kb: float, written_kb: float) -> Rows:
    """Return a row for each size of etcd's database: executions that it stores, and the rates that do not fill it.

    `stored_kb` is what a finished execution takes, `written_kb` what one adds to the history, its pod included.
    """
    rows: Rows = {}
    for name, megabytes in QUOTAS.items():
        room = 1000 * FULL_SHARE * megabytes
        rates = {f"rate at {ttl}": round(room / (ttl * stored_kb + HISTORY_SECONDS * written_kb), 1) for ttl in TTLS}
        rows[name] = {"stored": round(room / stored_kb), **rates}
    return rows


def read_cores(results: Results) -> Rows:
    """Return the model of cores from the results of the steady loads."""
    return model_cores(read_processor(results))


def read_etcd(results: Results) -> Rows:
    """Return the model of etcd from the results of stored executions. Raises KeyError if they have no line."""
    found: dict[str, Any] = results["capacity-executions"]
    stored = found["rows"]["line: each 1,000 more"]["used MB"]  # MB of a thousand are kB of one
    return model_etcd(stored_kb=stored, written_kb=found["more"]["written KB"])
