"""What warm pods, executions and sessions use of processor and memory, and what that costs.

It computes with the figures of three benchmarks: density (a pod at rest), containers (start, end and use of a sandbox's
container) and sustained (the control plane's part of an execution, and how long it takes).
"""

from typing import Final

from figures import Results, Row, Rows, read_containers, read_density, read_load, read_processor

RUNS: Final = ("density", "containers", "sustained")
"""Benchmarks whose results are needed."""
RUNTIMES: Final = ("gVisor", "runc")
EXECUTIONS: Final = 1000
SESSION_EXECUTIONS: Final = 60
"""Executions in an hour of a session: one a minute."""
CORE_HOUR: Final = 0.03
"""Price in dollars of the page's table: an example of a cloud's general machines, and no provider's list price."""
GIB_HOUR: Final = 0.004
"""As CORE_HOUR, for a GiB of memory."""
PUBLISHED: Final[Rows] = {"gke-sandboxes: 1 hour of an awake sandbox, of a whole cluster's bill": {"cents": 1.9}}
"""Of a public report of 16 and 17 November: 381 awake hours of 91 sandboxes with 2 vCPU and 4 GB, on GKE."""
_HOUR: Final = 3600
_CENTS: Final = 100
_MEBIBYTES: Final = 1024
_OF_THE_BENCHMARK: Final = frozenset({"simulator", "client", "all"})


def read_costs(results: Results) -> Rows:
    """Return what each runtime uses, at the page's prices. Raises KeyError if a result lacks a figure."""
    rows = measure_use(
        density=read_density(results),
        containers=read_containers(results),
        processor=read_processor(results),
        seconds={mode: read_load(results["sustained"][mode])["p50"] / 1000 for mode in ("single", "reuse")},
    )
    return add_cents(rows, core_hour=CORE_HOUR, gib_hour=GIB_HOUR)


def measure_use(*, density: Rows, containers: Rows, processor: Rows, seconds: dict[str, float]) -> Rows:
    """Return processor seconds and GiB seconds of each kind of use, by runtime.

    `seconds` has the median time from the request to its answer by mode, which bounds the time with a sandbox.
    """
    control = {
        mode: sum(row.get(mode, 0.0) for label, row in processor.items() if label not in _OF_THE_BENCHMARK) / 1000
        for mode in ("single", "reuse", "session")
    }
    rows: Rows = {}
    for runtime in RUNTIMES:
        warm, container = density[f"{runtime}, a warm sandbox"], containers[f"{runtime}, a sandbox"]
        gibibytes, idle = warm["MB"] / _MEBIBYTES, warm["processor %"] / 100 * _HOUR
        fresh, used = container["start"] + container["end"], container["use"] / 1000
        rows |= {
            f"{runtime}: 1 hour of a warm pod": _use(idle, gibibytes * _HOUR),
            f"{runtime}: 1,000 executions, each in a new pod": _use(
                EXECUTIONS * (fresh + control["single"]), EXECUTIONS * gibibytes * seconds["single"]
            ),
            f"{runtime}: 1,000 executions in reused pods": _use(
                EXECUTIONS * (used + control["reuse"]), EXECUTIONS * gibibytes * seconds["reuse"]
            ),
            f"{runtime}: 1 hour of a session with {SESSION_EXECUTIONS} executions": _use(
                idle + SESSION_EXECUTIONS * control["session"], gibibytes * _HOUR
            ),
        }
    return rows


def _use(processor: float, memory: float) -> Row:
    return {"processor s": round(processor, 2), "GiB s": round(memory, 2)}


def add_cents(rows: Rows, *, core_hour: float, gib_hour: float) -> Rows:
    """Return the rows with hundredths of the currency, by the prices of an hour of a core and of a GiB."""
    return {
        label: row | {"cents": round(_CENTS * (row["processor s"] * core_hour + row["GiB s"] * gib_hour) / _HOUR, 4)}
        for label, row in rows.items()
    }
