import pytest
from starlette.types import Message, Scope

from mcp_exec_gateway.core.http.json import LargeResponse, json_response
from mcp_exec_gateway.core.http.limits import MemoryBudget
from mcp_exec_gateway.core.http.problems import HttpProblem

SCOPE: Scope = {"type": "http", "method": "GET", "path": "/", "headers": []}


async def never() -> Message:
    raise AssertionError("nothing is received")


def test_what_is_reserved_is_released_at_the_end() -> None:
    budget = MemoryBudget(limit=100)
    with budget.reserving("a") as first, budget.reserving("b") as second:
        assert first.resize(60)
        assert not second.resize(50)
        assert second.resize(40)
        first.release()
        assert budget.used == 40
        second.require(100)
    assert budget.used == 0


def test_a_request_without_memory_is_asked_to_try_again() -> None:
    budget = MemoryBudget(limit=100)
    with budget.reserving("a") as reservation, pytest.raises(HttpProblem, match="100 bytes") as raised:
        reservation.require(101)
    assert (raised.value.status, raised.value.headers["Retry-After"]) == (503, "2")


def test_the_requests_of_one_namespace_leave_memory_to_others() -> None:
    budget = MemoryBudget(limit=100, namespace_limit=70)
    with budget.reserving("a") as first, budget.reserving("a") as second, budget.reserving("b") as other:
        assert first.resize(60)
        with pytest.raises(HttpProblem, match="those of namespace a 60 of 70"):
            second.require(11)
        assert other.resize(40)
        assert first.resize(10)
        assert second.resize(50)
    with budget.reserving("a") as reservation:
        assert reservation.resize(70)


def test_a_small_response_does_not_count() -> None:
    assert not isinstance(json_response({"a": 1}, memory=MemoryBudget(limit=0)), LargeResponse)


async def test_a_large_response_counts_until_the_client_has_accepted_it() -> None:
    budget, sent, used = MemoryBudget(limit=10**6), bytearray(), []

    async def send(message: Message) -> None:
        used.append(budget.used)
        sent.extend(message.get("body", b""))

    response = json_response(["x" * 500_000], memory=budget)
    await response(SCOPE, never, send)
    assert len(sent) == 500_004
    assert set(used) == {500_004}
    assert budget.used == 0


async def test_a_large_response_without_memory_becomes_a_503() -> None:
    messages: list[Message] = []

    async def send(message: Message) -> None:
        messages.append(message)

    await json_response(["x" * 500_000], memory=MemoryBudget(limit=1000))(SCOPE, never, send)
    assert messages[0]["status"] == 503
    assert b"urn:mcp-exec:problem:unavailable" in messages[1]["body"]


async def test_a_client_that_accepts_nothing_does_not_hold_memory_forever() -> None:
    budget = MemoryBudget()

    async def send(message: Message) -> None:
        raise TimeoutError  # as the time limit of the response raises it

    with pytest.raises(TimeoutError):
        await json_response(["x" * 500_000], memory=budget)(SCOPE, never, send)
    assert budget.used == 0
