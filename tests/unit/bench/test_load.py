"""Times of executions, and the summary of their latency."""

from harness import TimedExecution, percentile, stage_rows
from sustained import arrivals, windows


def run(milliseconds: float, problem: str = "") -> TimedExecution:
    return TimedExecution(milliseconds=milliseconds, answer={"durations": {"bind": milliseconds / 2}}, problem=problem)


def test_arrivals_are_the_same_for_a_seed_and_as_many_as_the_rate_says() -> None:
    moments = arrivals(rate=45, seconds=600, seed=1)
    assert moments == arrivals(rate=45, seconds=600, seed=1) != arrivals(rate=45, seconds=600, seed=2)
    assert moments == sorted(moments)
    assert moments[0] >= 0
    assert moments[-1] < 600
    assert abs(len(moments) / 600 - 45) < 2


def test_medians_are_told_by_ten_seconds() -> None:
    assert windows([1.0, 2.0, 11.0], [run(5.0), run(7.0), run(9.0)]) == [5.0, 9.0]


def test_one_that_failed_counts_for_its_client_and_for_no_stage() -> None:
    rows = stage_rows([run(10.0), run(20.0, problem="it failed")])
    assert (rows["client, total"]["n"], rows["  bind"]["n"]) == (2, 1)


def test_a_percentile_is_a_sample() -> None:
    assert [percentile([3.0, 1.0, 2.0], share) for share in (0.01, 0.5, 0.99)] == [1.0, 2.0, 3.0]
