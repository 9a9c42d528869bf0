from itertools import islice

import pytest

from mcp_exec_common.util.backoff import Backoff, delay_after, delays


def test_delays_grow_by_the_factor_up_to_the_last() -> None:
    assert list(islice(delays(first=0.5, last=3.0), 5)) == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert list(islice(delays(first=1.0, last=9.0, factor=1.5), 3)) == [1.0, 1.5, 2.25]


@pytest.mark.parametrize(("attempts", "expected"), [(0, []), (1, []), (2, [1.0]), (4, [1.0, 2.0, 4.0])])
def test_there_is_one_delay_fewer_than_attempts(attempts: int, expected: list[float]) -> None:
    assert list(delays(first=1.0, last=30.0, attempts=attempts)) == expected


def test_a_delay_stays_finite_after_any_number_of_failures() -> None:
    assert delay_after(0, first=0.25, last=15.0) == 0.25
    assert delay_after(1, first=0.25, last=15.0) == 0.25
    assert delay_after(10_000_000, first=0.25, last=15.0) == 15.0
    backoff = Backoff(first=0.5, last=8.0)
    for _ in range(5000):
        backoff.fail(backoff.until)
    assert backoff.failures == 5000


def test_failures_during_a_delay_count_once() -> None:
    backoff = Backoff(first=1.0, last=30.0)
    for at in (10.0, 10.0, 10.9):
        backoff.fail(at)
    assert (backoff.failures, backoff.until) == (1, 11.0)
    backoff.fail(11.0)
    assert (backoff.failures, backoff.until) == (2, 13.0)


def test_a_success_resets_the_delay() -> None:
    backoff = Backoff(first=1.0, last=30.0)
    for at in (0.0, 1.0, 3.0):
        backoff.fail(at)
    backoff.succeed()
    assert (backoff.failures, backoff.until) == (0, 0.0)
    backoff.fail(100.0)
    assert backoff.until == 101.0
