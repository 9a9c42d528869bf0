"""Memory of requests on files: a caller that names many users takes no more of it."""

import dataclasses
from contextlib import AsyncExitStack

import pytest

from mcp_exec_broker.core.errors import ToolCallError
from mcp_exec_broker.core.memory import MIB, BytesInFlight
from mcp_exec_broker.features.files.api.requests import build_flight
from mcp_exec_broker.features.files.keys import OwnerSpace

_S3_UPLOAD = 33 * MIB


def build_impatient() -> BytesInFlight:
    return BytesInFlight(limits=dataclasses.replace(build_flight().limits, wait_seconds=0.01))


def space_of(user: int, *, caller: str = "c", namespace: str = "agents") -> OwnerSpace:
    return OwnerSpace(namespace, f"{user:032x}", caller * 32)


async def hold(flight: BytesInFlight, stack: AsyncExitStack, space: OwnerSpace, size: int) -> None:
    await (await stack.enter_async_context(flight.lease(space))).acquire(size)


async def test_the_uploads_of_a_callers_users_leave_room_for_those_of_others() -> None:
    flight = build_impatient()
    async with AsyncExitStack() as stack:
        await hold(flight, stack, space_of(1), _S3_UPLOAD)
        with pytest.raises(ToolCallError):
            await hold(flight, stack, space_of(2), _S3_UPLOAD)
        await hold(flight, stack, space_of(1, caller="d"), _S3_UPLOAD)
        await hold(flight, stack, space_of(1, namespace="others"), _S3_UPLOAD)
    assert flight.total == 0


async def test_slow_downloads_of_many_users_are_counted_as_their_callers() -> None:
    flight = build_impatient()
    async with AsyncExitStack() as stack:
        for user in range(flight.limits.requests):
            assert flight.count_requests(space_of(99)) == user
            await hold(flight, stack, space_of(user), 2 * MIB)
        assert flight.count_requests(space_of(99)) >= flight.limits.requests, "the next one is refused"
        assert flight.count_requests(space_of(1, caller="d")) == 0
        await hold(flight, stack, space_of(1, caller="d"), _S3_UPLOAD)
