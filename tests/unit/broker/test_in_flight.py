"""Memory of calls in flight: its limits and the order of those who wait for it."""

import asyncio
import dataclasses

import pytest
from tests.support.grants import make_grant
from tests.support.pace import paced

from mcp_exec_broker.core import memory
from mcp_exec_broker.core.errors import ToolCallError
from mcp_exec_broker.core.memory import MIB, BytesInFlight, FlightLimits
from mcp_exec_common.broker.grants import Grant


def grant(execution: str, namespace: str = "agents") -> Grant:
    return make_grant(execution=execution, name=execution, namespace=namespace)


FLIGHT = FlightLimits(total=100, per_namespace=80, per_execution=50, wait_seconds=5)


async def test_one_execution_and_one_namespace_leave_a_part_to_others() -> None:
    flight = BytesInFlight(limits=FLIGHT)
    async with flight.lease(grant("a")) as first, flight.lease(grant("b")) as second:
        with pytest.raises(ToolCallError, match="fewer values"):
            await first.acquire(51)
        await first.acquire(50)
        async with flight.lease(grant("a")) as further:
            with pytest.raises(ToolCallError, match="results"):
                await further.acquire(1)
        await second.acquire(30)
        async with flight.lease(grant("c", "others")) as other:
            await other.acquire(20)
            assert flight.total == 100
    assert (flight.total, dict(flight.by_execution), dict(flight.by_namespace)) == (0, {}, {})


async def test_calls_get_memory_in_their_order_and_a_full_namespace_holds_up_no_other() -> None:
    flight, order = BytesInFlight(limits=FLIGHT), list[str]()

    async def call(execution: str, namespace: str, size: int) -> None:
        async with flight.lease(grant(execution, namespace)) as lease:
            await lease.acquire(size)
            order.append(execution)
            await release.wait()

    release = asyncio.Event()
    async with flight.lease(grant("a")) as first, flight.lease(grant("b")) as second:
        await first.acquire(40)
        await second.acquire(40)
        waiting = [asyncio.create_task(call(*each)) for each in (("c", "agents", 10), ("d", "others", 20))]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert order == ["d"]
        async with flight.lease(grant("e", "others")) as probe:
            gone = asyncio.create_task(probe.acquire(5))
            await asyncio.sleep(0)
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
        assert order == ["d"]
    release.set()
    await asyncio.gather(*waiting)
    assert order == ["d", "c"]
    assert flight.total == 0


async def test_a_call_that_gets_no_memory_is_denied() -> None:
    flight = BytesInFlight(limits=FlightLimits(total=10, per_namespace=10, per_execution=10, wait_seconds=0))
    async with flight.lease(grant("a")) as first, flight.lease(grant("b")) as second:
        await first.acquire(10)
        with pytest.raises(ToolCallError, match="try again") as refused:
            await second.acquire(1)
        assert str(refused.value.reason) == "RateLimited"
    assert flight.total == 0


async def test_unread_results_count_for_their_execution_only() -> None:
    flight = BytesInFlight(limits=FLIGHT)
    async with flight.lease(grant("a")) as first, flight.lease(grant("a")) as second:
        first.set_result(60)
        with pytest.raises(ToolCallError, match="not read yet"):
            await second.acquire(1)
        assert flight.total == 0
    assert dict(flight.by_execution) == {}
    assert FlightLimits().per_execution == 64 * MIB


async def test_calls_of_one_execution_that_wait_together_get_no_more_than_its_share() -> None:
    flight, most = BytesInFlight(limits=FLIGHT), 0

    async def call() -> None:
        nonlocal most
        async with flight.lease(grant("a", "others")) as lease:
            await lease.acquire(30)
            most = max(most, flight.by_execution["a"])
            await asyncio.sleep(0)

    async with flight.lease(grant("b")) as first, flight.lease(grant("c")) as second:
        await first.acquire(50)
        await second.acquire(30)
        waiting = [asyncio.create_task(call()) for _ in range(3)]
        await asyncio.sleep(0)
        assert flight.total == 80
    await asyncio.gather(*waiting)
    assert (most, flight.total) == (30, 0)


async def test_calls_that_wait_for_an_approval_leave_half_of_the_memory_to_others() -> None:
    flight = BytesInFlight(limits=FLIGHT)
    async with flight.lease(grant("a")) as first, flight.lease(grant("b")) as second:
        await first.acquire(40)
        await second.acquire(1)
        with first.waiting_for_approval():
            wanted = pytest.raises(ToolCallError, match="40 bytes of memory in namespace agents")
            with wanted, second.waiting_for_approval():
                raise AssertionError
            async with flight.lease(grant("c", "others")) as third:
                await third.acquire(11)
                wanted = pytest.raises(ToolCallError, match="50 bytes of memory at this broker")
                with wanted, third.waiting_for_approval():
                    raise AssertionError
        with second.waiting_for_approval():
            assert flight.parked == {"agents": 1}
    assert (flight.total, dict(flight.parked)) == (0, {})


async def test_arguments_take_no_memory_while_the_sandbox_reads_the_result() -> None:
    flight = BytesInFlight(limits=FLIGHT)
    async with flight.lease(grant("a")) as lease:
        await lease.acquire(50)
        lease.set_result(10)
        assert (flight.total, dict(flight.by_execution), dict(flight.by_namespace)) == (0, {"a": 10}, {})
    assert dict(flight.by_execution) == {}


async def test_an_answer_waits_for_memory_and_is_refused_if_there_is_none() -> None:
    flight = BytesInFlight(limits=FlightLimits(total=10, per_namespace=10, per_execution=10, wait_seconds=0))
    async with flight.lease(grant("a")) as first, flight.lease(grant("b")) as second:
        await first.acquire(4)
        await first.acquire_answer(6)
        with pytest.raises(ToolCallError, match="would take 11 bytes of memory or more, allowed are 10") as refused:
            await first.acquire_answer(1)
        assert str(refused.value.reason) == "ResultTooLarge"
        with pytest.raises(ToolCallError, match="the tool was called, but other calls take the memory"):
            await second.acquire_answer(1)
    assert (flight.total, dict(flight.by_execution), dict(flight.by_namespace)) == (0, {}, {})


async def test_all_parts_of_an_answer_wait_for_memory_no_longer_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(memory, "monotonic", lambda: now)
    flight = BytesInFlight(limits=dataclasses.replace(FLIGHT, wait_seconds=3600))
    async with asyncio.timeout(paced(10)), flight.lease(grant("a")) as lease:
        async with flight.lease(grant("b")) as first, flight.lease(grant("c")) as second:
            await first.acquire(50)
            await second.acquire(30)
            part = asyncio.create_task(lease.acquire_answer(10))
            await asyncio.sleep(0)
            assert not part.done()
            now += 3600
        await part
        async with flight.lease(grant("b")) as first, flight.lease(grant("c")) as second:
            await first.acquire(50)
            await second.acquire(20)
            with pytest.raises(ToolCallError, match="other calls take the memory"):
                await lease.acquire_answer(10)
        await lease.acquire_answer(10)
    assert flight.total == 0


async def test_memory_that_another_request_takes_over_is_counted_once() -> None:
    flight = BytesInFlight(limits=FLIGHT)
    async with flight.lease(grant("a")) as call:
        async with flight.lease(grant("server")) as session:
            await session.acquire_answer(30)
            flight.move(session, call, 30)
        assert (flight.total, dict(flight.by_execution), dict(flight.by_namespace)) == (30, {"a": 30}, {"agents": 30})
    assert (flight.total, dict(flight.by_execution), dict(flight.by_namespace)) == (0, {}, {})
