"""Rate limits of API keys, by a clock of the test."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_api.wire.stats import KeyLimits
from mcp_exec_gateway.core.auth.callers import Caller
from mcp_exec_gateway.core.auth.rate_limits import RateLimiter
from mcp_exec_gateway.core.http.problems import HttpProblem


def caller(name: str = "team-a", requests_per_minute: int | None = 6) -> Caller:
    limits = KeyLimits(requests_per_minute=requests_per_minute)
    return Caller(name=name, label=name, namespace="agents", limits=limits)


def refused(rates: RateLimiter, who: Caller) -> HttpProblem:
    with pytest.raises(HttpProblem) as caught:
        rates.check(who)
    return caught.value


def test_a_key_has_so_many_at_once_and_then_one_at_a_time() -> None:
    now = [1000.0]
    rates = RateLimiter(clock=lambda: now[0])
    for _ in range(6):
        rates.check(caller())
    problem = refused(rates, caller())
    assert (problem.status, problem.kind, problem.headers) == (429, "rate-limited", {"Retry-After": "10"})
    assert "team-a may send 6 requests in a minute" in problem.detail
    now[0] += 7.5
    assert refused(rates, caller()).headers == {"Retry-After": "3"}
    now[0] += 2.5
    rates.check(caller())
    assert refused(rates, caller()).headers == {"Retry-After": "10"}


def test_each_key_has_its_own_and_one_without_a_limit_has_none() -> None:
    rates = RateLimiter(clock=lambda: 0.0)
    for _ in range(6):
        rates.check(caller())
    rates.check(caller("team-b"))
    for _ in range(1000):
        rates.check(caller("free", None))


def test_a_limit_that_is_changed_holds_at_once() -> None:
    rates = RateLimiter(clock=lambda: 0.0)
    for _ in range(6):
        rates.check(caller())
    rates.check(caller(requests_per_minute=2))
    rates.check(caller(requests_per_minute=2))
    assert refused(rates, caller(requests_per_minute=2)).headers == {"Retry-After": "30"}


@given(per_minute=st.integers(1, 600), waits=st.lists(st.floats(0, 20), min_size=1, max_size=100))
def test_who_comes_back_when_told_is_served_and_no_more_pass_than_may(per_minute: int, waits: list[float]) -> None:
    now, passed = [50.0], 0
    rates, who = RateLimiter(clock=lambda: now[0]), caller(requests_per_minute=per_minute)
    for wait in waits:
        now[0] += wait
        try:
            rates.check(who)
        except HttpProblem as problem:
            now[0] += int(problem.headers["Retry-After"]) + 1e-6
            rates.check(who)
        passed += 1
    assert passed <= per_minute + (now[0] - 50) * per_minute / 60 + 1e-6
