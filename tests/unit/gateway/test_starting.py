"""An execution whose request is cancelled while it is created."""

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.pace import paced

from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_gateway.core.executions.service import ExecutionService

KEY = ("agents", "exec-1")


async def abandon(created: Object | Exception | None) -> list[ObjectKey]:
    """Cancel a request during the creation, and return the keys that were noted at its end."""
    entered, release = asyncio.Event(), asyncio.Event()
    noted: list[ObjectKey] = []

    async def submit(submission: Any, *, caller: Any) -> Object | None:
        entered.set()
        await release.wait()
        if isinstance(created, Exception):
            raise created
        return created

    ignored: Any = None
    service = ExecutionService(
        kube=ignored,
        index=cast(Any, SimpleNamespace(wait_for=lambda key, until: nullcontext())),
        pools=ignored,
        submitter=cast(Any, SimpleNamespace(build_submission=lambda *_, **__: SimpleNamespace(key=KEY), submit=submit)),
        metrics=cast(Any, SimpleNamespace(measure_stage=lambda name: nullcontext())),
        max_wait_seconds=1,
        wait_slots=ignored,
    )

    async def start() -> None:
        async with service.starting(
            ignored,
            metadata=ignored,
            marks={},
            marks_of_call={},
            caller=ignored,
            idempotency_key=None,
            until=lambda execution: False,
            note_abandoned=noted.append,
        ):
            pytest.fail("the request was cancelled")

    starting = asyncio.create_task(start())
    async with asyncio.timeout(paced(10)):
        await entered.wait()
    starting.cancel()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    return noted


async def test_an_abandoned_creation_names_its_own_execution_and_never_that_of_another() -> None:
    assert await abandon({"metadata": {"name": "exec-1"}}) == [KEY]
    assert await abandon(None) == []
    assert await abandon(ValueError("refused")) == []
