"""Quotas of executions."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from tests.support.clock import Clock
from tests.support.grants import make_grant
from tests.support.pace import paced

from mcp_exec_broker.core.access.quotas import (
    CLOCK_SECONDS,
    KEEP_SECONDS,
    MAX_NAME_CHARACTERS,
    MAX_SERVERS,
    MAX_TOOL_NAMES,
    ExecutionBudget,
    ExecutionQuota,
    ExecutionQuotas,
    ExecutionUsage,
    WaitingTime,
)
from mcp_exec_broker.core.errors import ErrorReason, ToolCallError
from mcp_exec_common.broker.grants import MAX_GRANT_SECONDS, Grant

DEADLINE = paced(10)


def grant(*, uid: str = "u-1", calls: int = 3) -> Grant:
    return make_grant(execution=uid, tool_calls=calls, expires=0)


def quota(*, calls: int = 3, **budget: int) -> ExecutionQuota:
    return ExecutionQuotas(budget=ExecutionBudget(**budget)).get_or_create(grant(calls=calls))


def call(found: ExecutionQuota, tool: str = "a.b", *, out: int = 1, into: int = 10, failed: bool = False) -> None:
    found.begin_call(tool, argument_bytes=out)
    found.end_call(failed=failed, result_bytes=into)


def denial(found: ExecutionQuota, tool: str = "a.b", *, out: int = 1) -> ToolCallError:
    with pytest.raises(ToolCallError) as raised:
        found.begin_call(tool, argument_bytes=out)
    found.end_call(failed=True, result_bytes=0)
    return raised.value


def test_bytes_are_bounded_both_ways() -> None:
    found = quota(calls=100, argument_bytes=100, result_bytes=50)
    call(found, out=60, into=30)
    assert denial(found, out=60).reason is ErrorReason.BUDGET_EXCEEDED
    call(found, out=40, into=30)
    assert "results" in denial(found, out=0).message


def test_beyond_fifty_tools_the_rest_are_one() -> None:
    found = quota(calls=1000)
    for number in range(MAX_TOOL_NAMES + 5):
        call(found, f"a.t{number}")
    call(found, "a.t0")
    by_tool = found.tool_calls.by_tool
    assert len(by_tool) == MAX_TOOL_NAMES + 1
    assert (by_tool["other"], by_tool["a.t0"]) == (5, 2)


def test_an_execution_that_ended_before_its_first_call_stays_ended() -> None:
    quotas = ExecutionQuotas()
    quotas.close_execution("u-1")
    assert denial(quotas.get_or_create(grant())).reason is ErrorReason.EXECUTION_ENDED


def test_a_quota_is_dropped_once_no_grant_is_valid_but_not_during_a_call() -> None:
    clock = Clock(0.0)
    quotas = ExecutionQuotas(clock=clock)
    busy = quotas.get_or_create(grant(uid="busy"))
    busy.begin_call("a.b", argument_bytes=1)
    call(quotas.get_or_create(grant(uid="idle")))
    clock.now = MAX_GRANT_SECONDS
    assert quotas.find("idle") is not None
    clock.now = KEEP_SECONDS + 1
    quotas.get_or_create(grant(uid="new"))
    assert quotas.find("idle") is None
    assert quotas.find("busy") is busy


def test_a_quota_outlives_the_grant_that_a_wait_for_an_approval_prolongs() -> None:
    clock = Clock(0.0)
    quotas = ExecutionQuotas(clock=clock)
    quota = quotas.get_or_create(grant())
    quota.waiting.clock = clock
    quota.begin_call("a.b", argument_bytes=1)
    with quota.waiting.wait(3600):
        clock.now += 3000
    assert quotas.has_open  # a broker that drains waits for it
    quota.end_call(failed=False, result_bytes=1)
    quotas.renew("u-1", quota)
    assert quotas.get_waiting_seconds("u-1") == 3000
    clock.now += MAX_GRANT_SECONDS
    assert quotas.find("u-1") is quota
    assert quotas.get_waiting_seconds("unknown") == 0


def test_calls_that_wait_at_the_same_time_count_once() -> None:
    clock = Clock(0.0)
    waiting = WaitingTime(clock=clock)
    with waiting.wait(60):
        clock.now += 10
        with waiting.wait(30):
            clock.now += 10
            assert (waiting.seconds, waiting.remaining_seconds) == (20, 40)
        clock.now += 5
    clock.now += 1000
    assert (waiting.seconds, waiting.remaining_seconds) == (25, 0)
    with waiting.wait(60):
        clock.now += 100
        assert (waiting.seconds, waiting.remaining_seconds) == (125, 0)


def test_other_executions_displace_no_quota_and_are_denied_if_there_are_too_many() -> None:
    quotas = ExecutionQuotas(max_quotas=10)
    call(quotas.get_or_create(grant(calls=1)))
    for number in range(2, 20):
        quotas.close_execution(f"u-{number}")
    with pytest.raises(ToolCallError) as raised:
        quotas.get_or_create(grant(uid="new"))
    assert raised.value.reason is ErrorReason.RATE_LIMITED
    assert denial(quotas.get_or_create(grant(calls=1))).reason is ErrorReason.BUDGET_EXCEEDED
    assert denial(quotas.get_or_create(grant(uid="u-2"))).reason is ErrorReason.EXECUTION_ENDED


async def test_no_more_than_so_many_calls_of_an_execution_are_made_at_once() -> None:
    found = quota(concurrency=2)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(found.acquire_slot())
        await stack.enter_async_context(found.acquire_slot())
        third = asyncio.create_task(stack.enter_async_context(found.acquire_slot()))
        await asyncio.wait({third}, timeout=0)
        assert not third.done()
        third.cancel()
        await asyncio.wait({third})
    async with found.acquire_slot(), found.acquire_slot():
        pass


def test_names_that_the_code_chooses_take_little_memory() -> None:
    found = quota(calls=100)
    for number in range(60):
        call(found, f"{number:02}.{'x' * 297}")
    names = found.tool_calls.by_tool
    assert len("".join(names)) <= MAX_NAME_CHARACTERS + len("other")
    assert (len(names), names["other"]) == (14, 47)


def test_the_quota_of_an_ended_execution_keeps_no_grant() -> None:
    quotas = ExecutionQuotas()
    quotas.get_or_create(grant())
    quotas.close_execution("u-1")
    found = quotas.get_or_create(grant())
    assert found.grant is None
    assert denial(found).reason == ErrorReason.EXECUTION_ENDED


def test_an_execution_that_has_ended_is_remembered_for_as_long_as_its_grant_may_be_valid() -> None:
    clock = Clock(0.0)
    quotas = ExecutionQuotas(clock=clock)
    call(quotas.get_or_create(grant()))
    for uid in ("u-1", "u-2"):
        quotas.close_execution(uid, grant_seconds=105)
    quotas.restore(ExecutionUsage(uid="u-3", is_closed=True, keep_seconds=165))
    quotas.restore(ExecutionUsage(uid="open", keep_seconds=165))
    clock.now = 105 + CLOCK_SECONDS - 1
    assert denial(quotas.get_or_create(grant(uid="u-2"))).reason is ErrorReason.EXECUTION_ENDED
    assert len(quotas) == 4
    clock.now += 2
    assert len(quotas) == 2  # that of u-2, which somebody has just asked for, and the open one


def test_the_servers_that_were_called_are_noted_up_to_a_bound() -> None:
    found = quota()
    for number in range(MAX_SERVERS + 5):
        found.add_server(f"server-{number}")
        found.add_server("server-0")
    assert len(found.servers) == MAX_SERVERS
    assert "server-0" in found.servers
