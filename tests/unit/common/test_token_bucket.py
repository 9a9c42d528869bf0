from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_common.util.token_bucket import TokenBucket


def test_a_bucket_without_rate_has_no_limit() -> None:
    bucket = TokenBucket()
    bucket.spend(1000, 0.0)
    assert bucket.available(0.0) is None
    assert bucket.ready_at(5.0) == 5.0


def test_a_burst_is_spent_at_once_and_comes_back_at_the_rate() -> None:
    bucket = TokenBucket(per_second=2.0, burst=4)
    assert bucket.available(100.0) == 4
    bucket.spend(4, 100.0)
    assert (bucket.available(100.0), bucket.ready_at(100.0)) == (0, 100.5)
    assert bucket.available(101.0) == 2
    assert bucket.ready_at(101.0) == 101.0
    assert bucket.available(1000.0) == 4


def test_a_clock_that_goes_back_adds_nothing() -> None:
    bucket = TokenBucket(per_second=1.0, burst=1)
    bucket.spend(1, 100.0)
    assert bucket.available(50.0) == 0


@given(
    wants=st.lists(st.tuples(st.floats(0, 5), st.integers(0, 30)), max_size=50),
    rate=st.floats(0.1, 50),
    burst=st.integers(1, 20),
)
def test_a_bucket_never_gives_more_than_its_burst_and_its_rate(
    wants: list[tuple[float, int]], rate: float, burst: int
) -> None:
    bucket, now, spent = TokenBucket(per_second=rate, burst=burst), 0.0, 0
    for gap, want in wants:
        now += gap
        available = bucket.available(now)
        assert available is not None
        taken = min(want, available)
        bucket.spend(taken, now)
        spent += taken
        assert spent <= burst + rate * now + 1e-6
