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
