"""When the gateway rejects an execution because its pool's queue is full."""

from typing import Any

import pytest

from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.core.pools import PoolCache


def pools(status: dict[str, Any], **spec: Any) -> PoolCache:
    made = PoolCache()
    made.on_change({"metadata": {"name": "p", "namespace": "n"}, "spec": spec, "status": status}, False)
    return made


def check(cache: PoolCache) -> None:
    pool = cache.find("n", "p")
    assert pool is not None
    pool.check_queue()


@pytest.mark.parametrize(("wait", "retry_after"), [(None, "5"), (0.3, "1"), (20.0, "2"), (21.0, "3"), (10_000.0, "60")])
def test_a_full_queue_says_when_a_tenth_of_it_is_served(wait: float | None, retry_after: str) -> None:
    status = {"queued": 1000} | ({} if wait is None else {"expectedWaitSeconds": wait})
    with pytest.raises(HttpProblem) as caught:
        check(pools(status))
    assert (caught.value.status, caught.value.kind) == (429, "queue-full")
    assert caught.value.headers == {"Retry-After": retry_after}
    assert "1000 executions wait for a pod of pool p, and its maxQueued is 1000" in caught.value.detail


@pytest.mark.parametrize(
    ("status", "spec"),
    [
        ({}, {}),
        ({"queued": 999, "expectedWaitSeconds": 9000}, {}),
        ({"queued": 1000}, {"maxQueued": 1001}),
    ],
)
def test_a_long_queue_that_has_room_is_joined(status: dict[str, Any], spec: dict[str, Any]) -> None:
    made = pools(status, **spec)
    check(made)
    assert made.find("n", "another") is None


def test_a_queue_that_empties_is_joined_again() -> None:
    made = pools({"queued": 5}, maxQueued=5)
    made.on_change({"metadata": {"name": "p", "namespace": "n"}, "spec": {"maxQueued": 5}, "status": {}}, False)
    check(made)
    made.on_change({"metadata": {"name": "p", "namespace": "n"}}, True)
    assert made.find("n", "p") is None
