"""What is measured of the demand for a pool's pods, and how fast pods are made for it."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_operator.core.scaling.demand import Demand, SlidingCount, round_to_step

gaps = st.lists(st.floats(0, 30), max_size=200)


@given(gaps=gaps, seconds=st.integers(1, 600))
def test_a_window_counts_what_it_had_to_a_twentieth_of_its_length(gaps: list[float], seconds: int) -> None:
    count, now, times = SlidingCount(seconds), 0.0, []
    for gap in gaps:
        now += gap
        times.append(now)
        count.add(now)
        inside = sum(now - each < seconds * 0.949 for each in times)
        around = sum(now - each <= seconds * 1.001 for each in times)
        assert inside <= count.total(now) <= around
        assert count.size <= 21
    assert count.total(now + seconds * 1.001) == 0


@given(rates=st.lists(st.floats(0.0001, 10000), min_size=2, max_size=20))
def test_a_round_to_step_rate_is_close_and_in_the_same_order(rates: list[float]) -> None:
    for rate in rates:
        assert abs(round_to_step(rate) - rate) <= 0.15 * rate
        assert round_to_step(round_to_step(rate)) == round_to_step(rate)
    assert all(round_to_step(low) <= round_to_step(high) for low, high in pairwise(sorted(rates)))


def test_the_fast_window_sees_a_burst_and_the_slow_one_remembers_it() -> None:
    demand = Demand(fast_seconds=10, slow_seconds=100)
    for _ in range(50):
        demand.add_arrival(1000, warm=True)
    assert [demand.measure(1000 + after).rate for after in (0, 5, 20, 120)] == [5, 5, 0.5, 0]


def test_the_hit_rate_is_that_of_the_slow_window() -> None:
    demand = Demand(fast_seconds=1, slow_seconds=100)
    assert demand.measure(0).hit_rate is None
    for warm in (True, True, False):
        demand.add_arrival(0, warm=warm)
    assert demand.measure(50).hit_rate == 0.67
    assert demand.measure(200).hit_rate is None


def test_the_start_up_time_is_that_of_the_last_pods() -> None:
    demand = Demand()
    assert demand.measure(0).startup_seconds is None
    for seconds in range(1, 101):
        demand.add_startup(seconds)
    assert demand.measure(0).startup_seconds == 97  # of 37 to 100, as 64 are kept
    demand.add_startup(0.0)
    assert demand.measure(0).startup_seconds == 97
    for _ in range(64):
        demand.add_startup(0.123)
    assert demand.measure(0).startup_seconds == 0.12


def test_windows_of_another_size_begin_anew() -> None:
    demand = Demand(fast_seconds=10, slow_seconds=100)
    demand.add_arrival(0, warm=True)
    demand.add_startup(7)
    demand.configure(fast_seconds=20, slow_seconds=100)
    assert (demand.measure(0).rate, demand.measure(0).startup_seconds) == (0, 7)
