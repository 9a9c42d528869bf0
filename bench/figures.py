"""The tables of docs/internals/performance.md: what each shows of the benchmarks' results, and what is compared.

A row is a mapping from fields to values, under the label of the row. Fields are numbers; a name says the unit, or that
the value is a ratio to a floor or a peer of the same run.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

Row = dict[str, Any]
Rows = dict[str, Row]
Results = Mapping[str, Any]
"""JSON of the benchmarks by their names in `programs.BENCHMARKS`."""

PERCENTILES: Final = ("p50", "p90", "p99")
_IMAGE_ROWS: Final = {"sleeps": "sleeps", "sandbox, now": "a sandbox"}
_PROCESSES: Final = {
    "kube-apiserver": "API server", "operator": "operator", "etcd": "etcd", "kube-scheduler": "scheduler",
    "simulator": "simulator", "kube-controller-manager": "controller manager", "gateway": "gateway",
    "load generator": "client", "kubelet": "kubelet",
}  # fmt: skip
_WORKSPACE: Final = {
    "first save": "first save, in all", "cold, added": "cold: a new sandbox fetches all files",
    "session, bare": "in a session without a workspace", "unchanged, added": "unchanged, in a session",
    "one changed, added": "one file changed, in a session",
}  # fmt: skip
_MCP_DIRECT: Final = {
    "the server alone": ("by /mcp", "direct"), "by `/mcp`, gateway and broker": ("by /mcp", "by /mcp"),
    "the server alone, next to the proxy": ("bare proxy", "direct"),
    "by a bare proxy of the SDK": ("bare proxy", "bare proxy"),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FigureTable:
    """One table of the page."""

    runs: tuple[str, ...]
    """Benchmarks that it shows."""
    head: str
    """Heading of the column of labels."""
    columns: Mapping[str, str]
    """Templates of cells by heading, such as `{p50} / {p99}`."""
    read: Callable[[Results], Rows]
    compared: tuple[str, ...]
    """Fields to compare with those of the page: ratios, counts and shares if the benchmark has them."""
    published: Rows | None = None
    """Rows of others, which no benchmark here measures."""


def read_latency(results: Results) -> Rows:
    """Return a row for each concurrency."""
    rows = {}
    for name, found in results["latency"].items():
        if name.startswith("concurrency "):
            ours, floor = found["summary"]["client, total"], found["summary"]["floor"]
            fields = {f"floor {each}": floor[each] for each in PERCENTILES} | {each: ours[each] for each in PERCENTILES}
            tail = round(ours["p99"] / floor["p99"], 2)
            rows[name.split()[1]] = fields | {"samples": ours["n"], "ratio p50": found["ratio"], "ratio p99": tail}
    return rows


def read_stages(results: Results) -> Rows:
    """Return the operator's stages at each concurrency."""
    return {
        name.split()[1]: {
            stage.strip(): found["summary"][stage]["p50"] for stage in found["summary"] if stage[0] == " "
        }
        for name, found in results["latency"].items()
        if name.startswith("concurrency ")
    }


def read_writes(results: Results) -> Rows:
    """Return the writes with and without reuse."""
    labels = {"writes": "run of up to 0.1 s", "writes-reuse": "run in a reused pod"}
    rows = {}
    for name, label in labels.items():
        found = results[name]["rows"]
        total = next(row["an execution"] for each, row in found.items() if each.startswith("SUM"))
        rows[label] = {"before": found["most before the code starts"]["in all"], "all": total}
    return rows


def read_load(found: Results, **more: Any) -> Row:
    """Return the row of one burst or load."""
    stages = found["stages"]["client, total"]
    return {each: stages[each] for each in PERCENTILES} | {"failed": found["failed"], "cold": found["cold"]} | more


def read_bursts(results: Results) -> Rows:
    """Return the first burst, and the slowest of the others."""
    first, *others = results["burst"]["rounds"]
    rows = {"mcp-exec, first burst": read_load(first, all=first["all done within s"])}
    if others:
        worst = max(others, key=lambda each: float(each["all done within s"]))
        rows["mcp-exec, slowest of further bursts"] = read_load(worst, all=worst["all done within s"])
    return rows


def read_steady(results: Results) -> Rows:
    """Return the steady loads on simulated nodes."""
    words = {"single": "", "reuse": " with reuse", "session": " in sessions"}
    loads = [("single", results["sustained-30"]["single"]), *((each, results["sustained"][each]) for each in words)]
    return {
        f"mcp-exec{words[mode]}, {found['rate']:g}/s for {found['seconds']:g} s": read_load(
            found, executions=found["executions"]
        )
        for mode, found in loads
    }


def read_processor(results: Results) -> Rows:
    """Return the milliseconds of each part for an execution, in the order of single use."""
    loads = {mode: results["sustained"][mode] for mode in ("single", "reuse", "session")}
    rows = {
        label: {
            mode: 1000 * found["processes"][name]["cpu s"] / found["executions"]
            for mode, found in loads.items()
            if name in found["processes"]
        }
        for name, label in _PROCESSES.items()
    }
    rows = {label: {mode: round(value, 1) for mode, value in row.items()} for label, row in rows.items() if row}
    return rows | {"all": {mode: round(sum(row.get(mode, 0) for row in rows.values()), 1) for mode in loads}}


def read_real(results: Results) -> Rows:
    """Return the loads on real pods."""
    worst = max(results["real-burst"]["rounds"], key=lambda each: float(each["all done within s"]))
    number = results["real-burst"]["executions"]
    loads = {
        "0.5/s, 12 warm": results["real-slow"]["single"],
        "1/s, 12 warm": results["real-single"]["single"],
        "1/s in sessions": results["real-single"]["session"],
        "5/s with reuse, 4 warm": results["real-reuse"]["reuse"],
        "10/s with reuse, 6 warm": results["real-reuse-fast"]["reuse"],
        "20/s with reuse, 6 warm, runc instead of gVisor": results["real-reuse-runc"]["reuse"],
    }
    rows = {label: read_load(found, executions=found["executions"]) for label, found in loads.items()}
    return {f"{number} at once on {number} warm, slowest burst": read_load(worst, executions=number)} | rows


def read_starts(results: Results) -> Rows:
    """Return the median of each kind of start."""
    kinds = {
        "cold": ("real-single", "single", "Cold", "a pod: scheduler, kubelet, container runtime and the start above"),
        "warm": (
            "real-slow",
            "single",
            "Warm",
            "nothing: the pod has been started ahead, and is replaced after the run",
        ),
        "reused": (
            "real-reuse",
            "reuse",
            "Reused",
            "nothing; the pod is cleaned after the run instead of being replaced",
        ),
        "session": ("real-single", "session", "Session", "nothing; the interpreter stays"),
    }
    rows = {}
    for label, (name, mode, start, what) in kinds.items():
        found = results[name][mode]
        if label == "cold" and start not in found["starts"]:  # a fast machine replaces the pods in time
            found = results["real-reuse-fast"]["reuse"]
        p50 = found["stages"]["client, total"]["p50"] if label == "session" else found["starts"].get(start)
        rows[label] = {"what": what, "p50": p50}
    return rows


def read_fill(results: Results) -> Rows:
    """Return a row for each size."""
    rows = {}
    for name, found in results["fill"].items():
        if name.startswith("0 to "):
            row = found["row"]
            fields = {"s": row["s"], "pods/s": row["pods/s"], "bare s": row["floor s"], "ratio": row["ratio"]}
            rows[f"{int(name.split()[2]):,}"] = fields
    return rows


def read_footprint(results: Results) -> Rows:
    """Return the operator's use at rest."""
    return {
        name: {"MB": found["operator rss MB"], "cores": found["operator cores"]}
        for name, found in results["footprint"].items()
        if isinstance(found, dict) and "operator cores" in found
    }


def read_sandbox(results: Results) -> Rows:
    """Return sandboxes on loopback and in pods. The pool `default` is the one in gVisor."""
    labels = {"loopback": "on loopback, natively", "runc": "a runc pod", "default": "a gVisor pod"}
    return {labels[name]: row for name, row in results["sandbox"]["rows"].items()}


def read_density(results: Results) -> Rows:
    """Return pods of both runtimes. The pool `default` is the one in gVisor."""
    rows = {}
    for name, row in results["density"]["rows"].items():
        fields = {"MB": row["memory MB"], "processor %": row["CPU %"], "wake-ups/s": row["wake-ups/s"]}
        rows[name.replace("default", "gVisor")] = fields
    return rows


def read_workspace(results: Results) -> Rows:
    """Return a row for each kind of run, with a field for each number of files."""
    found = results["workspace"]["workspace"]
    return {label: {count: row[name] for count, row in found.items()} for name, label in _WORKSPACE.items()}


def read_containers(results: Results) -> Rows:
    """Return starts, ends and uses of containers."""
    rows = {}
    for runtime, shown in (("runsc", "gVisor"), ("runc", "runc")):
        for name, label in _IMAGE_ROWS.items():
            if (row := results["containers"]["rows"].get(f"{runtime}, {name}")) is not None:
                fields = {"start": row["start CPU s"], "end": row["end CPU s"], "use": row["a use CPU ms"]}
                rows[f"{shown}, {label}"] = fields | {"more": row["more than sleeping"]}
    return {label: {name: value for name, value in row.items() if value != ""} for label, row in rows.items()}


def read_tools(results: Results) -> Rows:
    """Return a row for each number of calls at once."""
    rows = {}
    for at_once, found in results["tools"]["at once"].items():
        row = {f"ratio {each}": found[f"ratio {each}"] for each in ("p50", "p99", "calls/s")}
        for way, figures in found["ways"].items():
            row |= {
                f"{way} p50": figures["p50 ms"],
                f"{way} p99": figures["p99 ms"],
                f"{way} calls/s": figures["calls/s"],
            }
        rows[at_once] = row
    return rows


def read_records(results: Results) -> Rows:
    """Return a row for each number of calls at once and each kind of records."""
    return {
        f"{at_once}, {name}": {
            "p50": row["p50 ms"], "p95": row["p95 ms"], "p99": row["p99 ms"], "calls/s": row["calls/s"],
            "ratio p50": row["p50 / off"],
        }
        for at_once, found in results["records"]["calls"].items()
        for name, row in found.items()
    }  # fmt: skip


def read_batches(results: Results) -> Rows:
    """Return a row for each kind of records."""
    batches = results["records"]["batches"].items()
    return {name: {"p50": row["p50 ms"], "rows/s": row["rows/s"]} for name, row in batches}


def read_sign_in(results: Results) -> Rows:
    """Return a row for each way to authenticate."""
    rows = results["signin"]["rows"].items()
    return {name: {share: row[f"{share} us"] for share in PERCENTILES} | {"ratio": row["ratio"]} for name, row in rows}


def read_mcp_endpoint(results: Results) -> Rows:
    """Return a row for each way."""
    found = results["mcp-endpoint"]["summary"]
    rest = found["REST"]["p50"]
    return {name: {"p50": row["p50"], "ratio": round(row["p50"] / rest, 2)} for name, row in found.items()}


def read_mcp_direct(results: Results) -> Rows:
    """Return a row for each way, with fields for each number of calls at once."""
    rows: Rows = {label: {} for label in _MCP_DIRECT}
    for at_once, found in results["mcp-direct"]["at once"].items():
        for label, (pair, way) in _MCP_DIRECT.items():
            figures = found[pair]["ways"][way]
            rows[label] |= {f"p50 of {at_once}": figures["p50 ms"], f"p99 of {at_once}": figures["p99 ms"]}
            if way != "direct":
                rows[label][f"ratio of {at_once}"] = found[pair]["ratio p50"]
    return rows


def read_scaling(results: Results) -> Rows:
    """Return a row for each trace: shares of warm hits in percent."""
    rows = {}
    for name, found in results["scaling"]["traces"].items():
        equal = found["equal"]
        hits = {policy: round(100 * equal[policy]["hit rate"], 1) for policy in ("demand", "fixed", "hpa")}
        rows[name] = {"idle": found["idle pods"], **hits}
    return rows


def show(value: Any) -> str:
    """Return a value as a table shows it: three digits, and thousands with commas."""
    if not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{round(value):,}"
    return f"{value:.3g}"


def render(table: FigureTable, rows: Rows) -> str:
    """Return a table in Markdown: the measured rows, then the published ones."""
    lines = [[table.head, *table.columns], ["---"] * (len(table.columns) + 1)]
    for label, row in (rows | (table.published or {})).items():
        lines.append([label, *(_fill_cell(template, row) for template in table.columns.values())])
    return "\n".join("|" + "|".join(f" {cell} " if cell != "---" else cell for cell in line) + "|" for line in lines)


class _Shown(dict[str, Any]):
    """Fields of a row as text; a field that is missing is empty."""

    def __missing__(self, name: str) -> str:
        return ""


def _fill_cell(template: str, row: Row) -> str:
    shown = _Shown({name: show(value) for name, value in row.items() if value is not None})
    text = template.format_map(shown)
    return text.strip(" /") if text != template.format_map(_Shown()) else ""


def compare(table: FigureTable, page: Rows, now: Rows) -> list[tuple[str, float, float]]:
    """Return label with field, the page's value and the new one, for each compared field that both have."""
    return [
        (f"{label}: {field}", page[label][field], row[field])
        for label, row in now.items()
        for field in table.compared
        if isinstance(page.get(label, {}).get(field), (int, float)) and isinstance(row.get(field), (int, float))
    ]
