"""Which tables the pages of measurements have, their figures in bench/data/figures.json, and all these files' texts.

The figures are recorded by `make bench RECORD=yes`, a table's rows always together.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from capacity_tables import CAPACITY_TABLES
from figures import (
    FigureTable,
    Results,
    Rows,
    read_batches,
    read_bursts,
    read_containers,
    read_density,
    read_fill,
    read_footprint,
    read_latency,
    read_mcp_direct,
    read_mcp_endpoint,
    read_processor,
    read_real,
    read_records,
    read_sandbox,
    read_scaling,
    read_sign_in,
    read_stages,
    read_starts,
    read_steady,
    read_tools,
    read_workspace,
    read_writes,
    render,
)
from pace_figures import PUBLISHED as PUBLISHED_RATES
from pace_figures import read_cores, read_knee, read_profiles, read_timeline
from run_costs import PUBLISHED, RUNS, read_costs

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "internals" / "performance.md"
PAGES: Final = (PAGE, PAGE.with_name("capacity.md"))
FIGURES: Final = ROOT / "bench" / "data" / "figures.json"
_BLOCK = re.compile(r"(<!-- begin (?P<name>[a-z ]+) -->\n)(?P<text>.*?)(<!-- end -->)", re.DOTALL)
_LOAD: Final = {"p50": "{p50}", "p90": "{p90}", "p99": "{p99}", "failed": "{failed}"}
_REAL_RUNS: Final = ("real-burst", "real-slow", "real-single", "real-reuse", "real-reuse-fast", "real-reuse-runc")
_CLAIMS_AT_ONCE: Final[Rows] = {"agent-sandbox, six nodes": {"all": 2.8, "p50": 900, "p90": 2300, "p99": 2600}}
_CLAIMS_STEADY: Final[Rows] = {
    "agent-sandbox, 45/s for 60 s, twelve nodes": {"p50": 92, "p90": 182, "p99": 376, "failed": 0}
}

TABLES: Final[Mapping[str, FigureTable]] = {
    "latency": FigureTable(
        runs=("latency",),
        head="concurrency",
        columns={
            "samples": "{samples}",
            "client p50 / p90 / p99 ms": "{p50} / {p90} / {p99}",
            "floor p50 / p90 / p99 ms": "{floor p50} / {floor p90} / {floor p99}",
            "ratio of the p50": "{ratio p50}",
            "ratio of the p99": "{ratio p99}",
        },
        read=read_latency,
        compared=("ratio p50", "ratio p99"),
    ),
    "stages": FigureTable(
        runs=("latency",),
        head="concurrency",
        columns={
            "until the operator has it": "{queued}", "until it is bound": "{bind}",
            "until the code starts": "{dispatch}", "in the sandbox": "{run}",
        },
        read=read_stages,
        compared=("queued", "bind", "dispatch", "run"),
    ),
    "writes": FigureTable(
        runs=("writes", "writes-reuse"),
        head="",
        columns={"writes before the code starts": "{before}", "writes in all": "{all}"},
        read=read_writes,
        compared=("before", "all"),
        published={
            "longer run": {"before": 2, "all": "6 (the pod is labelled)"},
            "first run in a pod of a pool that reuses pods": {
                "before": "3 (the owner is recorded together with the binding)", "all": 4,
            },
        },
    ),
    "bursts": FigureTable(
        runs=("burst",),
        head="300 at once on 300 warm, ms",
        columns={"all done within s": "{all}", **_LOAD},
        read=read_bursts,
        compared=("all", "p50", "p99", "failed"),
        published=_CLAIMS_AT_ONCE,
    ),
    "steady": FigureTable(
        runs=("sustained", "sustained-30"),
        head="steady load, Poisson, ms",
        columns={**_LOAD, "executions": "{executions}", "no warm pod": "{cold}"},
        read=read_steady,
        compared=("p50", "p99", "failed", "cold"),
        published=_CLAIMS_STEADY,
    ),
    "processor": FigureTable(
        runs=("sustained",),
        head="processor ms of an execution",
        columns={"single use, 45/s": "{single}", "with reuse, 75/s": "{reuse}", "in sessions, 75/s": "{session}"},
        read=read_processor,
        compared=("single", "reuse", "session"),
    ),
    "knee": FigureTable(
        runs=("knee",),
        head="at the knee, of an execution",
        columns={"floor": "{floor}", "mcp-exec": "{mcp-exec}", "ratio": "{ratio}"},
        read=read_knee,
        compared=("ratio",),
    ),
    "profiles": FigureTable(
        runs=("profiles",),
        head="process, activity",
        columns={"share of its time": "{share} %", "processor ms of an execution": "{ms}"},
        read=read_profiles,
        compared=("share",),
    ),
    "timeline": FigureTable(
        runs=("timeline",),
        head="stage, ms",
        columns={
            "1 at once, p50 / p99": "{p50 of 1} / {p99 of 1}", "mean": "{mean of 1}",
            "16 at once, p50 / p99": "{p50 of 16} / {p99 of 16}", "its mean": "{mean of 16}",
        },
        read=read_timeline,
        compared=("mean of 1", "mean of 16"),
    ),
    "cores": FigureTable(
        runs=("sustained",),
        head="",
        columns={
            "what one is": "{what}", "rate, 1/s": "{rate}", "p50 / p99 ms": "{p50} / {p99}",
            "cores of the control plane": "{cores}", "1/s by core": "{by core}",
            "API server, processor ms of one": "{server}", "1/s by core that the API server uses": "{by used core}",
        },
        read=read_cores,
        compared=("by used core",),
        published=PUBLISHED_RATES,
    ),
    "real": FigureTable(
        runs=_REAL_RUNS,
        head="real gVisor pods, ms",
        columns={**_LOAD, "executions": "{executions}", "no warm pod": "{cold}"},
        read=read_real,
        compared=("p50", "p99", "failed", "cold"),
    ),
    "fill": FigureTable(
        runs=("fill",),
        head="pool from 0 to",
        columns={"time, s": "{s}", "pods/s": "{pods/s}", "a bare client's time, s": "{bare s}", "ratio": "{ratio}"},
        read=read_fill,
        compared=("ratio",),
    ),
    "footprint": FigureTable(
        runs=("footprint",),
        head="",
        columns={"memory": "{MB} MB", "cores": "{cores}"},
        read=read_footprint,
        compared=("MB", "cores"),
    ),
    "sandbox": FigureTable(
        runs=("sandbox",),
        head="median",
        columns={"first event, ms": "{first event ms}", "end, ms": "{end ms}", "100 MB of output, s": "{100 MB s}"},
        read=read_sandbox,
        compared=("first event ms", "end ms", "100 MB s"),
    ),
    "density": FigureTable(
        runs=("density",),
        head="median",
        columns={"memory": "{MB} MB", "processor": "{processor %} %", "wake-ups/s": "{wake-ups/s}"},
        read=read_density,
        compared=("MB", "processor %"),
    ),
    "workspace": FigureTable(
        runs=("workspace",),
        head="ms",
        columns={"1 file": "{1 files}", "1,000 files": "{1000 files}", "10,000 files": "{10000 files}"},
        read=read_workspace,
        compared=("1 files", "1000 files", "10000 files"),
    ),
    "containers": FigureTable(
        runs=("containers",),
        head="processor seconds of the container",
        columns={"start": "{start}", "end": "{end}", "more than sleeping": "{more}", "a use, ms": "{use}"},
        read=read_containers,
        compared=("start", "end", "more", "use"),
    ),
    "costs": FigureTable(
        runs=RUNS,
        head="what",
        columns={"processor s": "{processor s}", "GiB s": "{GiB s}", "cents": "{cents}"},
        read=read_costs,
        compared=("processor s", "GiB s"),
        published=PUBLISHED,
    ),
    "starts": FigureTable(
        runs=("real-single", "real-slow", "real-reuse"),
        head="start of an execution, gVisor",
        columns={"what it waits for": "{what}", "a client's p50, ms": "{p50}"},
        read=read_starts,
        compared=("p50",),
    ),
    "tools": FigureTable(
        runs=("tools",),
        head="at once",
        columns={
            "direct, p50 / p99 ms": "{direct p50} / {direct p99}",
            "broker, p50 / p99 ms": "{broker p50} / {broker p99}",
            "ratio, p50 / p99": "{ratio p50} / {ratio p99}",
            "calls/s, direct / broker": "{direct calls/s} / {broker calls/s}",
        },
        read=read_tools,
        compared=("ratio p50", "ratio p99", "ratio calls/s"),
    ),
    "records": FigureTable(
        runs=("records",),
        head="at once, records",
        columns={"p50 / p95 / p99 ms": "{p50} / {p95} / {p99}", "calls/s": "{calls/s}", "p50 to off": "{ratio p50}"},
        read=read_records,
        compared=("ratio p50",),
    ),
    "batches": FigureTable(
        runs=("records",),
        head="rows of executions, a hundred at a time",
        columns={"p50 ms": "{p50}", "rows/s": "{rows/s}"},
        read=read_batches,
        compared=("p50",),
    ),
    "sign in": FigureTable(
        runs=("signin",),
        head="sender of a request",
        columns={"p50 / p90 / p99 µs": "{p50} / {p90} / {p99}", "p50 to the API key": "{ratio}"},
        read=read_sign_in,
        compared=("ratio",),
    ),
    "mcp endpoint": FigureTable(
        runs=("mcp-endpoint",),
        head="`run_code`, runc, 40 of each",
        columns={"p50 ms": "{p50}", "ratio": "{ratio}"},
        read=read_mcp_endpoint,
        compared=("ratio",),
    ),
    "mcp direct": FigureTable(
        runs=("mcp-direct",),
        head="direct call of a tool of 1 ms",
        columns={
            "1 at once, p50 / p99 ms": "{p50 of 1} / {p99 of 1}", "ratio of the p50": "{ratio of 1}",
            "16 at once, p50 / p99 ms": "{p50 of 16} / {p99 of 16}", "its ratio": "{ratio of 16}",
        },
        read=read_mcp_direct,
        compared=("ratio of 1", "ratio of 16"),
    ),
    "scaling": FigureTable(
        runs=("scaling",),
        head="warm hits at equal cost",
        columns={"idle pods, mean": "{idle}", "demand": "{demand} %", "fixed": "{fixed} %", "HPA": "{hpa} %"},
        read=read_scaling,
        compared=("idle", "demand"),
    ),
    **CAPACITY_TABLES,
}  # fmt: skip


def load_figures() -> dict[str, Any]:
    """Return the recorded figures."""
    found: dict[str, Any] = json.loads(FIGURES.read_text())
    return found


def fill_page(page: str, recorded: Mapping[str, Any]) -> str:
    """Return the page with its tables. Raises KeyError for a table that does not exist."""

    def fill(match: re.Match[str]) -> str:
        name = match["name"]
        return f"{match[1]}\n{render(TABLES[name], recorded['tables'][name]['rows'])}\n\n{match[4]}"

    return _BLOCK.sub(fill, page)


def list_blocks(page: str) -> list[str]:
    """Return the names of the page's tables."""
    return [match["name"] for match in _BLOCK.finditer(page)]


def strip_blocks(page: str) -> str:
    """Return the page without its tables."""
    return _BLOCK.sub("", page)


def read_tables(results: Results) -> dict[str, Rows]:
    """Return the rows of each table all of whose benchmarks have results."""
    return {name: table.read(results) for name, table in TABLES.items() if set(table.runs) <= results.keys()}


def record(results: Results, *, at: str, machine: Mapping[str, Any]) -> list[str]:
    """Write the figures and the pages. Return the names of the tables that were renewed."""
    recorded, found = load_figures(), read_tables(results)
    for name, rows in found.items():
        recorded["tables"][name] = {"at": at, "machine": dict(machine), "rows": rows}
    FIGURES.write_text(json.dumps(recorded, indent=1) + "\n")
    for page in PAGES:
        page.write_text(fill_page(page.read_text(), recorded))
    return list(found)
