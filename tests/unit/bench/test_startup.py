"""The meter of bench/startup.py: what counts as processor time, and how pods are compared."""

from pathlib import Path

from startup import Cost, parse_busy_seconds, read_group_seconds, summarize

STAT = "cpu  100 10 50 9000 300 4 6 70 5 5\ncpu0 1 1 1 1 1 1 1 1 1 1\n"


def test_idle_stolen_and_waiting_time_is_no_work() -> None:
    assert parse_busy_seconds(STAT) == (100 + 10 + 50 + 4 + 6) / 100


def test_both_versions_of_control_groups_are_read(tmp_path: Path) -> None:
    (tmp_path / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    assert read_group_seconds(tmp_path) == 2.5
    (tmp_path / "cpuacct.usage").write_text("1500000000\n")
    assert read_group_seconds(tmp_path) == 1.5


def test_pods_are_compared_by_the_medians_of_start_and_end_together() -> None:
    floor = [Cost(start=start, end=0.5, ready=(1.0, 2.0)) for start in (1.0, 1.1, 9.0)]
    costs = [Cost(start=start, end=0.7, ready=(3.0, 4.0)) for start in (1.2, 1.3, 1.4)]
    row = summarize(costs, floor)
    assert (row["start CPU s"], row["end CPU s"], row["more than sleeping"]) == (1.3, 0.7, 0.4)
    assert (row["ready p50 s"], row["ready max s"]) == (3.0, 4.0)
