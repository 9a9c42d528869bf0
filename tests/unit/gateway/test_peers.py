"""Peers of requests without valid credentials: their addresses and their limit."""

import ipaddress
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import HTTPConnection

from mcp_exec_gateway.core.auth.rate_limits import PeerLimiter, find_peer
from mcp_exec_gateway.core.http.problems import HttpProblem

PROXIES = (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fd00::/8"))


def request(address: str, *forwarded: str) -> HTTPConnection:
    headers = [(b"x-forwarded-for", value.encode()) for value in forwarded]
    return HTTPConnection({"type": "http", "client": (address, 1234), "headers": headers})


@pytest.mark.parametrize(
    ("address", "forwarded", "peer"),
    [
        ("192.0.2.1", (), "192.0.2.1"),
        ("192.0.2.1", ("198.51.100.9",), "192.0.2.1"),  # no proxy's: it can write what it wants
        ("10.0.0.1", (), "10.0.0.1"),
        ("10.0.0.1", ("198.51.100.9",), "198.51.100.9"),
        ("10.0.0.1", ("203.0.113.5, 198.51.100.9",), "198.51.100.9"),  # the client wrote the first
        ("10.0.0.1", ("203.0.113.5, 198.51.100.9, 10.0.0.7",), "198.51.100.9"),
        ("10.0.0.1", ("203.0.113.5", "198.51.100.9"), "198.51.100.9"),
        ("10.0.0.1", ("203.0.113.5, nonsense",), "10.0.0.1"),
        ("10.0.0.1", ("203.0.113.5, " + "10.0.0.9," * 3000 + "10.0.0.9",), "10.0.0.9"),
        ("10.0.0.1", ("",), "10.0.0.1"),
        ("10.0.0.1", ("9" * 90000,), "10.0.0.1"),
        ("::ffff:192.0.2.1", (), "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", (), "2001:db8:1:2::/64"),
        ("fd00::1", ("2001:db8:1:2:3:4:5:6",), "2001:db8:1:2::/64"),
        ("", (), ""),
    ],
)
def test_a_proxys_header_counts_only_if_the_proxy_is_trusted(
    address: str, forwarded: tuple[str, ...], peer: str
) -> None:
    assert find_peer(request(address, *forwarded), trusted=PROXIES) == peer
    if not address.startswith(("10.", "fd00")):
        assert find_peer(request(address, *forwarded), trusted=()) == peer


def refused(limiter: PeerLimiter, peer: str) -> HttpProblem:
    with pytest.raises(HttpProblem) as caught:
        limiter.take(peer)
    return caught.value


def test_a_flood_of_other_addresses_does_not_reset_a_peer_that_is_refused() -> None:
    limiter = PeerLimiter(per_minute=3, clock=lambda: 100.0)
    for _ in range(3):
        limiter.take("192.0.2.1")
    for number in range(20_000):
        with suppress(HttpProblem):
            limiter.take(f"2001:db8:0:{number:x}::/64")
    problem = refused(limiter, "192.0.2.1")
    assert (problem.status, problem.kind) == (429, "rate-limited")
    assert int(problem.headers["Retry-After"]) >= 20


def test_few_peers_share_a_bucket_with_an_attacker() -> None:
    limiter = PeerLimiter(per_minute=1, clock=lambda: 0.0)
    for number in range(1000):
        with suppress(HttpProblem):
            limiter.take(f"attacker {number}")
    refusals = 0
    for number in range(1000):
        try:
            limiter.take(f"peer {number}")
        except HttpProblem:
            refusals += 1
    assert refusals < 50


def test_a_request_that_had_valid_credentials_does_not_count() -> None:
    limiter = PeerLimiter(per_minute=2, clock=lambda: 0.0)
    for _ in range(10):
        limiter.take("192.0.2.1")
        limiter.give_back("192.0.2.1")
    limiter.take("192.0.2.1")
    limiter.take("192.0.2.1")
    assert refused(limiter, "192.0.2.1").headers == {"Retry-After": "30"}


@given(per_minute=st.integers(1, 600), waits=st.lists(st.floats(0, 20), min_size=1, max_size=50))
def test_a_peer_that_obeys_retry_after_is_served_and_no_more_pass_than_the_limit(
    per_minute: int, waits: list[float]
) -> None:
    now, passed = [50.0], 0
    limiter = PeerLimiter(per_minute=per_minute, clock=lambda: now[0])
    for wait in waits:
        now[0] += wait
        try:
            limiter.take("peer")
        except HttpProblem as problem:
            now[0] += int(problem.headers["Retry-After"]) + 1e-6
            limiter.take("peer")
        passed += 1
    assert passed <= per_minute + (now[0] - 50) * per_minute / 60 + 1e-6
