"""What each table of docs/internals/performance.md shows of the benchmarks' JSON."""

from typing import Any

import page
import pytest
from harness import TimedExecution, stage_rows
from sustained import arrivals, medians

Json = dict[str, Any]
RUNS = [
    TimedExecution(milliseconds=value, answer={"start": start, "durations": {"total": value}}, problem="")
    for value, start in ((10.0, "Warm"), (20.0, "Warm"), (2000.0, "Cold"))
]
PROCESSES = {
    "kube-apiserver": {"cpu s": 0.06, "cores": 0.1, "rss MB": 9},
    "operator": {"cpu s": 0.03, "cores": 0, "rss MB": 1},
}


def load(rate: float = 1.0, seconds: float = 40.0) -> Json:
    return {
        "rate": rate, "seconds": seconds, "executions": 3, "failed": 0, "cold": 1, "starts": medians(RUNS),
        "stages": stage_rows(RUNS), "processes": PROCESSES,
    }  # fmt: skip


def burst(seconds: float) -> Json:
    return {"all done within s": seconds, **load()}


REAL = {
    "real-burst": {"executions": 12, "rounds": [burst(0.5), burst(0.9)]},
    "real-slow": {"single": load(0.5)},
    "real-single": {"single": load(), "session": load()},
    "real-reuse": {"reuse": load(5.0)},
    "real-reuse-fast": {"reuse": load(10.0)},
    "real-reuse-runc": {"reuse": load(20.0)},
}
SUSTAINED = {
    "sustained": {mode: load(45.0, 60.0) for mode in ("single", "reuse", "session")} | {"machine": {"cores": 2}},
    "sustained-30": {"single": load(30.0, 20.0)},
}
AT_KNEE = {"p50": 20.0, "p99": 200.0, "processor ms": {"all": 30.0}, "writes": {"admin": 8.0}}
KNEES = {
    "floor": {"knee": {**AT_KNEE, "rate": 64.0}}, "mcp-exec": {"knee": {**AT_KNEE, "rate": 32.0}}, "ratio": 0.5,
}  # fmt: skip
CASES: list[tuple[str, Json, str, Json]] = [
    ("bursts", {"burst": {"rounds": [burst(2.6), burst(2.1), burst(3.7)]}}, "mcp-exec, slowest of further bursts",
     {"all": 3.7, "p50": 20.0, "p90": 2000.0, "p99": 2000.0, "failed": 0, "cold": 1}),
    ("steady", SUSTAINED, "mcp-exec with reuse, 45/s for 60 s",
     {"p50": 20.0, "p90": 2000.0, "p99": 2000.0, "failed": 0, "cold": 1, "executions": 3}),
    ("processor", SUSTAINED, "all", {"single": 30.0, "reuse": 30.0, "session": 30.0}),
    ("cores", SUSTAINED, "mcp-exec, 45/s",
     {"what": "a request gets a warm sandbox, runs code and has its output; the pod is replaced", "rate": 45.0,
      "cores": 2, "p50": 20.0, "p99": 2000.0, "by core": 22.5, "server": 20.0, "by used core": 50.0}),
    ("knee", {"knee": {"single": KNEES, "reuse": KNEES}}, "executions/s, with reuse",
     {"floor": 64.0, "mcp-exec": 32.0, "ratio": 0.5}),
    ("profiles", {"profiles": {"views": {"operator": {
        "JSON": {"share": 12.0, "ms": 1.2}, "kopf": {"share": 3.5, "ms": 0.35}, "other": {"share": 5.0, "ms": 0.5}}}}},
     "operator: all else", {"share": 8.5, "ms": 0.85}),
    ("timeline", {"timeline": {"concurrency": {
        "1": {"stages": {"operator: pod, job": {"p50": 0.8, "p99": 2.0, "mean": 1.0}}},
        "16": {"stages": {"operator: pod, job": {"p50": 8.0, "p99": 20.0, "mean": 10.0}}}}}},
     "operator: pod, job", {"p50 of 1": 0.8, "p99 of 1": 2.0, "mean of 1": 1.0,
                        "p50 of 16": 8.0, "p99 of 16": 20.0, "mean of 16": 10.0}),
    ("real", REAL, "12 at once on 12 warm, slowest burst",
     {"p50": 20.0, "p90": 2000.0, "p99": 2000.0, "failed": 0, "cold": 1, "executions": 12}),
    ("starts", REAL, "cold",
     {"what": "a pod: scheduler, kubelet, container runtime and the start above", "p50": 2000.0}),
    ("fill", {"fill": {"machine": {}, "0 to 1000": {"row": {"s": 12.0, "pods/s": 83.0, "floor s": 6.0, "ratio": 2.0}}}},
     "1,000", {"s": 12.0, "pods/s": 83.0, "bare s": 6.0, "ratio": 2.0}),
    ("footprint", {"footprint": {"machine": {}, "0 pods, filled": {"operator rss MB": 87, "operator cores": 0.001}}},
     "0 pods, filled", {"MB": 87, "cores": 0.001}),
    ("density", {"density": {"rows": {"default, a warm sandbox": {"memory MB": 77, "CPU %": 3.3, "wake-ups/s": 2800}}}},
     "gVisor, a warm sandbox", {"MB": 77, "processor %": 3.3, "wake-ups/s": 2800}),
    ("containers", {"containers": {"rows": {"runsc, sandbox, now": {
        "start CPU s": 0.3, "end CPU s": 0.02, "more than sleeping": 0.2, "a use CPU ms": 60.0}}}},
     "gVisor, a sandbox", {"start": 0.3, "end": 0.02, "more": 0.2, "use": 60.0}),
    ("mcp endpoint", {"mcp-endpoint": {"summary": {"REST": {"p50": 20.0}, "/mcp 2026-07-28": {"p50": 30.0}}}},
     "/mcp 2026-07-28", {"p50": 30.0, "ratio": 1.5}),
    ("sign in", {"signin": {"rows": {"API key": {"p50 us": 15.1, "p90 us": 28.4, "p99 us": 72.8, "ratio": 1.0}}}},
     "API key", {"p50": 15.1, "p90": 28.4, "p99": 72.8, "ratio": 1.0}),
    ("sandbox", {"sandbox": {"rows": {"default": {"first event ms": 2.0, "end ms": 5.1, "100 MB s": 2.0}}}},
     "a gVisor pod", {"first event ms": 2.0, "end ms": 5.1, "100 MB s": 2.0}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "results", "label", "row"), CASES, ids=[case[0] for case in CASES])
def test_a_table_shows_what_its_benchmarks_measured(name: str, results: Json, label: str, row: Json) -> None:
    assert page.read_tables(results)[name][label] == row


def test_a_label_of_the_page_is_one_that_its_benchmarks_give() -> None:
    for name, results, label, _ in CASES:
        if name != "steady":
            assert label in page.load_figures()["tables"][name]["rows"], results.keys()


def test_the_smallest_load_has_an_execution() -> None:
    assert arrivals(rate=2.0, seconds=2.0, seed=1)
