"""The model of a control plane's cores and of etcd's size, and what is read of memory, heaps and watches."""

import os

import capacity_model
import page
import pytest
from capacity import QUANTITIES, build_rows
from capacity_model import (
    CORES,
    NO_PART,
    SERIAL_SHARE,
    USED_SHARE,
    find_lowest,
    find_releases,
    list_bounds,
    model_cores,
    model_etcd,
    speed_up,
)
from capacity_probe import count_watches
from capacity_stored import Measurement
from processes import ProcessMemory, read_heap

SPENT = {"API server": 20.0, "operator": 10.0, "etcd": 4.0, "scheduler": 2.0, "gateway": 4.0}


def test_one_core_does_the_work_of_one_and_many_do_less_than_their_number() -> None:
    assert speed_up(1) == pytest.approx(1)
    assert speed_up(64) == pytest.approx(1 / (SERIAL_SHARE + (1 - SERIAL_SHARE) / 64))
    assert speed_up(10**9) == pytest.approx(1 / SERIAL_SHARE)


def test_few_cores_are_the_bound_themselves() -> None:
    found = find_lowest(SPENT, cores=1, releases=1)
    assert (found.part, found.rate) == ("all cores", pytest.approx(1000 * USED_SHARE / 40))


def test_of_many_cores_the_operator_uses_one() -> None:
    found = find_lowest(SPENT, cores=64, releases=1)
    assert (found.part, found.rate) == ("operator", pytest.approx(1000 * USED_SHARE / 10))


def test_releases_are_added_until_another_part_is_the_bound() -> None:
    assert find_releases(SPENT, cores=1) == 1
    assert find_releases(SPENT, cores=64) == 3
    found = find_lowest(SPENT, cores=64, releases=3)
    assert (found.part, found.rate) == ("etcd", pytest.approx(1000 * USED_SHARE / 4))


def test_no_release_and_no_core_lifts_the_bound_of_etcd() -> None:
    assert find_lowest(SPENT, cores=10**6, releases=60).part == "etcd"


def test_a_part_that_an_execution_does_not_use_is_no_bound() -> None:
    parts = {bound.part for bound in list_bounds({**SPENT, "scheduler": 0.0}, cores=4, releases=1)}
    assert parts == {"all cores", "API server", "operator", "etcd"}


def test_the_benchmarks_own_parts_do_not_count() -> None:
    rows = {part: {"single": milliseconds, "reuse": milliseconds} for part, milliseconds in SPENT.items()}
    assert model_cores(rows) == model_cores(rows | {part: {"single": 90.0, "reuse": 90.0} for part in NO_PART})


def test_more_cores_never_carry_less() -> None:
    rows = page.load_figures()["tables"]["processor"]["rows"]
    for field in ("single rate", "single rate of all", "reuse rate", "reuse rate of all"):
        rates = [row[field] for row in model_cores(rows).values()]
        assert rates == sorted(rates)
        assert len(rates) == len(CORES)


def test_a_longer_ttl_and_more_history_leave_room_for_fewer_executions() -> None:
    row = model_etcd(stored_kb=5, written_kb=50)["2 GiB, etcd's default quota"]
    room = 0.8 * 2**31 / 1000
    assert row["stored"] == round(room / 5)
    assert row["rate at 3600"] == pytest.approx(room / (3600 * 5 + 600 * 50), abs=0.05)
    assert row["rate at 3600"] < row["rate at 600"] < row["rate at 60"]
    assert model_etcd(stored_kb=5, written_kb=90)["2 GiB, etcd's default quota"]["rate at 60"] < row["rate at 60"]


def test_a_results_rows_are_the_measured_ones_what_is_left_and_the_line() -> None:
    fields = QUANTITIES["tools"].fields
    steps = {count: dict.fromkeys(fields, float(count)) for count in (100, 250, 1000)}
    rows = build_rows(QUANTITIES["tools"], Measurement(steps=steps, after={"deleted": {"broker MB": 1.0}}, more={}))
    assert list(rows) == [
        "100", "250", "1,000", "deleted", "line: each 1,000 more", "line: R²", "line: largest residual",
        "2,000, extrapolated", "5,000, extrapolated",
    ]  # fmt: skip
    assert rows["5,000, extrapolated"]["broker MB"] == 5000


def test_watches_of_all_kinds_are_counted_and_other_long_requests_are_not() -> None:
    metrics = """# TYPE apiserver_longrunning_requests gauge
apiserver_longrunning_requests{component="apiserver",group="",resource="pods",verb="WATCH",version="v1"} 12
apiserver_longrunning_requests{component="apiserver",group="mcp-exec.dev",resource="skills",verb="WATCH"} 3
apiserver_longrunning_requests{component="apiserver",group="",resource="pods",subresource="log",verb="CONNECT"} 7
"""
    assert count_watches(metrics) == 15


def test_memory_that_is_not_of_files_is_a_part_of_the_resident_one() -> None:
    found = ProcessMemory.read(os.getpid())
    assert 1 < found.anonymous <= found.resident


def test_a_heap_is_read_from_the_metrics_of_a_go_process() -> None:
    metrics = "# TYPE go_memstats_heap_alloc_bytes gauge\ngo_memstats_heap_alloc_bytes 1.2345678e+07\n"
    assert read_heap(metrics + "go_memstats_heap_idle_bytes 9e+09\n") == 12.3


def test_the_models_of_the_page_are_those_of_its_figures() -> None:
    tables = page.load_figures()["tables"]
    assert tables["cores of a control plane"]["rows"] == capacity_model.model_cores(tables["processor"]["rows"])
