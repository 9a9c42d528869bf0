"""What bench/costs.py computes from the results of other benchmarks, and how it refuses what it cannot use."""

import argparse
import copy
import json
from pathlib import Path
from typing import Any

import page
import pytest
from costs import MissingFigures, load_use, read_price
from run_costs import add_cents, read_costs


def load(milliseconds: float, **processes: float) -> dict[str, Any]:
    """Return ten executions of bench/sustained.py, whose processes used so many processor seconds."""
    times = dict.fromkeys(("p50", "p90", "p99"), milliseconds)
    used = {name: {"cpu s": seconds} for name, seconds in processes.items()}
    return {"executions": 10, "failed": 0, "cold": 0, "stages": {"client, total": times}, "processes": used}


RESULTS: dict[str, Any] = {
    "density": {
        "rows": {
            "runc, a warm sandbox": {"memory MB": 32, "CPU %": 0.05, "wake-ups/s": 1},
            "default, a warm sandbox": {"memory MB": 64, "CPU %": 2.0, "wake-ups/s": 3000},
        }
    },
    "containers": {
        "rows": {
            "runc, sandbox, now": {"start CPU s": 0.08, "end CPU s": 0.0, "a use CPU ms": 6, "more than sleeping": 0},
            "runsc, sandbox, now": {
                "start CPU s": 0.26,
                "end CPU s": 0.02,
                "a use CPU ms": 60,
                "more than sleeping": 0,
            },
        }
    },
    "sustained": {
        "single": load(200, operator=0.1, simulator=5.0, etcd=0.02) | {"rate": 45},
        "reuse": load(20, operator=0.05) | {"rate": 75},
        "session": load(20, operator=0.04) | {"rate": 75},
    },
}


def write(folder: Path, results: dict[str, Any]) -> Path:
    for name, found in results.items():
        (folder / f"{name}.json").write_text(json.dumps(found))
    return folder


def test_a_run_uses_its_container_and_the_control_plane_without_the_parts_of_the_benchmark(tmp_path: Path) -> None:
    rows = load_use(write(tmp_path, RESULTS))
    used = {label: (row["processor s"], row["GiB s"]) for label, row in rows.items()}
    assert used == {
        "gVisor: 1 hour of a warm pod": (72.0, 225.0),
        "gVisor: 1,000 executions, each in a new pod": (292.0, 12.5),
        "gVisor: 1,000 executions in reused pods": (65.0, 1.25),
        "gVisor: 1 hour of a session with 60 executions": (72.24, 225.0),
        "runc: 1 hour of a warm pod": (1.8, 112.5),
        "runc: 1,000 executions, each in a new pod": (92.0, 6.25),
        "runc: 1,000 executions in reused pods": (11.0, 0.62),
        "runc: 1 hour of a session with 60 executions": (2.04, 112.5),
    }


def test_cents_are_those_of_processor_and_memory() -> None:
    [row] = add_cents({"a": {"processor s": 7200, "GiB s": 1800}}, core_hour=0.03, gib_hour=0.004).values()
    assert row == {"processor s": 7200, "GiB s": 1800, "cents": 6.2}


def test_the_recorded_figures_have_other_prices_by_the_same_use() -> None:
    rows = page.load_figures()["tables"]["costs"]["rows"]
    assert {label: row["cents"] for label, row in add_cents(rows, core_hour=0.03, gib_hour=0.004).items()} == {
        label: row["cents"] for label, row in rows.items()
    }
    assert page.TABLES["costs"].read(RESULTS) == read_costs(RESULTS)


@pytest.mark.parametrize("name", ["density", "containers", "sustained"])
def test_a_missing_result_is_named_with_what_makes_it(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path, {each: found for each, found in RESULTS.items() if each != name})
    with pytest.raises(MissingFigures, match=rf"{name}\.json cannot be read .*: run make bench ONLY=.*--recorded"):
        load_use(folder)


def test_a_result_that_is_no_json_is_refused(tmp_path: Path) -> None:
    write(tmp_path, RESULTS).joinpath("density.json").write_text("{")
    with pytest.raises(MissingFigures, match=r"density\.json cannot be read"):
        load_use(tmp_path)


@pytest.mark.parametrize(
    ("part", "key", "message"),
    [
        ("sustained", "reuse", "have no 'reuse'.*sustained all modes"),
        ("density", "rows", "have no 'rows'"),
    ],
)
def test_a_missing_figure_is_named_with_what_has_it(part: str, key: str, message: str, tmp_path: Path) -> None:
    results = copy.deepcopy(RESULTS)
    del results[part][key]
    with pytest.raises(MissingFigures, match=message):
        load_use(write(tmp_path, results))


def test_containers_without_uses_are_refused(tmp_path: Path) -> None:
    results = copy.deepcopy(RESULTS)
    results["containers"]["rows"]["runc, sandbox, now"]["a use CPU ms"] = ""
    with pytest.raises(MissingFigures, match=r"have no 'use'.*containers both runtimes and uses"):
        load_use(write(tmp_path, results))


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1e7", "three"])
def test_a_wrong_price_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"is no price; allowed: more than 0, at most 1,000,000"):
        read_price(text)
