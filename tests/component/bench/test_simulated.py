"""Programs of bench/ on simulated nodes with their smallest arguments, on a real control plane without nodes."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import suite
from programs import BENCHMARKS, Need, choose_smoke
from tests.support.control_plane import ControlPlane, running_control_plane
from tests.support.pace import paced
from timeline import STAGES, TOTAL

ROOT = Path(__file__).parents[3]
SECONDS = paced(400)
"""Limit of one program. On an idle machine each takes less than a minute."""
NEEDS = (Need.SIMULATED, Need.BINARIES)
ON_SIMULATED_NODES = {name: each for name, each in choose_smoke("").items() if each.need in NEEDS}
OURS = {"operator", "gateway", "kube-apiserver", "etcd"}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with running_control_plane(
        tmp_path_factory.mktemp("plane"), controllers=True, scheduler=True, audit=True
    ) as running:
        applied = running.kubectl("apply", "--server-side", "--filename", str(ROOT / "crds"))
        assert applied.returncode == 0, applied.stderr
        yield running


def check_load(found: dict[str, Any], *, executions: int) -> None:
    assert (found["failed"], found["problems"]) == (0, [])
    assert len(found["samples"]) == executions > 0
    stages = found["stages"]
    assert {row["n"] for row in stages.values()} == {executions}
    assert 0 < stages["  bind"]["p50"] < stages["client, total"]["max"]
    check_processes(found["processes"])


def check_processes(rows: dict[str, dict[str, float]]) -> None:
    assert rows.keys() >= OURS
    assert all(row["rss MB"] > 1 for row in rows.values())


def check_burst(found: dict[str, Any]) -> None:
    (one,) = found["rounds"]
    check_load(one, executions=found["executions"])
    assert one["cold"] == 0


def check_sustained(found: dict[str, Any]) -> None:
    for mode in ("reuse", "session"):
        check_load(found[mode], executions=found[mode]["executions"])
    assert found["reuse"]["reused"] > 0
    assert (found["session"]["reused"], found["session"]["sessions"]) == (0, 1)


def check_fill(found: dict[str, Any]) -> None:
    row = found["0 to 3"]["row"]
    assert row["s"] > 0 < row["floor s"]
    assert row["ratio"] > 0
    check_processes(found["0 to 3"]["processes"])


def check_footprint(found: dict[str, Any]) -> None:
    rows = [row for name, row in found.items() if " pods, " in name]
    assert len(rows) == 3, "two for the number of pods, and one for the finished executions"
    assert all(row[f"{name} rss MB"] > 1 and row[f"{name} cores"] >= 0 for row in rows for name in OURS)


def check_knee(found: dict[str, Any]) -> None:
    ours, floor = (found["single"][name]["probes"][0] for name in ("mcp-exec", "floor"))
    assert found["single"]["ratio"] == 1.0, "one probe of each side, at the same rate"
    assert (ours["failed"], floor["failed"]) == (0, 0)
    assert ours["executions"] == floor["executions"] > 0
    assert ours["processor ms"].keys() >= OURS
    assert floor["processor ms"].keys() >= {"kube-apiserver", "etcd"}
    assert {"operator", "gateway"} <= ours["writes"].keys()
    assert floor["writes"]["admin"] == 8, "four of the object, and four of the pod"


def check_profiles(found: dict[str, Any]) -> None:
    assert found["load"]["failed"] == 0 < found["load"]["executions"]
    for rows in found["views"].values():
        assert sum(row["share"] for row in rows.values()) == pytest.approx(100, abs=2)
        assert rows.get("other", {"share": 0})["share"] < 20, "nearly all stacks have a rule"
    # a profile of seconds has a hundred stacks, which need not show everything
    assert {"status of executions, written", "pods, changed", "watches, sent"} & found["views"][
        "API server, for"
    ].keys()
    assert {"JSON", "executions"} <= found["views"]["operator"].keys()


def check_timeline(found: dict[str, Any]) -> None:
    assert found["concurrency"].keys() == {"1", "2"}
    for level in found["concurrency"].values():
        assert (level["executions"], list(level["stages"])) == (2, [*STAGES.values(), TOTAL])
        rows = {stage: row["mean"] for stage, row in level["stages"].items()}
        total = rows.pop(TOTAL)
        assert sum(rows.values()) == pytest.approx(total, abs=0.2)
        assert level["waits for a processor, ms"].keys() >= OURS
    assert found["event loop late, ms"].keys() == {"gateway", "operator"}


def check_pace(found: dict[str, Any]) -> None:
    assert found["rows"]["writes"]["ratio"] == pytest.approx(1, abs=0.5), "the same code twice"
    assert found["rows"]["processor ms"]["now"] > 0


def check_capacity(found: dict[str, Any]) -> None:
    rows = found["rows"]
    measured = [row for label, row in rows.items() if label.isdigit()]
    assert len(measured) == 3
    for row in measured:
        assert all(row[f"{part} MB"] > 1 for part in ("API server", "etcd", "operator", "gateway"))
        assert 0 < row["etcd's own MB"] <= row["etcd MB"]
        assert 0 < row["used MB"] <= row["database MB"]
        assert min(row["operator starts s"], row["gateway starts s"]) > 0
    assert sum("extrapolated" in label for label in rows) == 2
    assert rows["line: R²"].keys() == rows["line: each 1,000 more"].keys()


def check_executions(found: dict[str, Any]) -> None:
    check_capacity(found)
    assert all(found["rows"][label]["p50 ms"] > 0 for label in ("0", "1", "2"))
    assert found["more"]["written KB"] > 1, "two executions with their pods"
    assert found["rows"].keys() >= {"2 deleted", "and etcd compacted", "and defragmented"}


def check_namespaces(found: dict[str, Any]) -> None:
    check_capacity(found)
    watches = [found["rows"][label]["watches"] for label in ("1", "2", "3")]
    assert watches[0] < watches[1] < watches[2]
    assert all(found["rows"][label]["broker MB"] > 1 for label in ("1", "2", "3"))


CHECKS: dict[str, Callable[[dict[str, Any]], None]] = {
    "burst": check_burst,
    "sustained": check_sustained,
    "fill": check_fill,
    "footprint": check_footprint,
    "knee": check_knee,
    "profiles": check_profiles,
    "timeline": check_timeline,
    "pace": check_pace,
    "plane": check_fill,
    "capacity-executions": check_executions,
    "capacity-pods": check_capacity,
    "capacity-namespaces": check_namespaces,
    "capacity-sessions": check_capacity,
}


@pytest.mark.timeout(SECONDS + 180)
@pytest.mark.parametrize("name", ON_SIMULATED_NODES)
def test_a_program_measures_a_release_on_simulated_nodes(name: str, plane: ControlPlane, tmp_path: Path) -> None:
    target = tmp_path / "figures.json"
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "BENCH_AUDIT_LOG": str(plane.audit_log)}
    command = suite.build_command(name, BENCHMARKS[name], smoke=True, target=target, environment=environment)
    done = suite.run_limited(command, seconds=SECONDS, capture=True, environment=environment)
    assert done.result == "done", done.output
    CHECKS[name](json.loads(target.read_text()))
