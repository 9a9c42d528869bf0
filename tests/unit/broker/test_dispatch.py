"""Dispatch of a call: the order of audit record, session and request."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from mcp_exec_api.tool_server import ServerLimits
from mcp_exec_broker.core.access.limiters import ServerConcurrency
from mcp_exec_broker.core.access.quotas import ExecutionBudget, ExecutionQuota
from mcp_exec_broker.core.calls.call import Call, ResolvedTool
from mcp_exec_broker.core.calls.dispatch import Dispatcher
from mcp_exec_broker.core.calls.scanner import NoScanner
from mcp_exec_broker.core.upstream.errors import ConnectionLost


class FakeSession:
    """A session that answers by its name until it is closed."""

    is_modern = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_closed = False

    async def call_tool(self, tool: str, arguments: dict[str, Any], *, receiver: object) -> dict[str, Any]:
        if self.is_closed:
            raise ConnectionLost("the connection has ended")
        return {"session": self.name}


class FakePool:
    """A pool with one session, which a change of the server's credentials replaces."""

    def __init__(self) -> None:
        self.session = FakeSession("old")

    async def get_session(self, server: object, user: str | None) -> FakeSession:
        return self.session

    def replace(self) -> None:
        self.session.is_closed = True
        self.session = FakeSession("new")


async def test_a_session_that_is_replaced_while_the_audit_record_is_written_loses_no_call() -> None:
    pool = FakePool()
    dispatcher = Dispatcher(sessions=cast(Any, pool), concurrency=ServerConcurrency())
    recorded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    call = Call(
        grant=cast(Any, SimpleNamespace(user=None)),
        request=cast(Any, SimpleNamespace(timeout_seconds=None, lease=None)),
        quota=ExecutionQuota(None, ExecutionBudget()),
        scanner=NoScanner(),
        notify_approval=cast(Any, None),
        started=0.0,
        recorded=recorded,
    )
    resolved = SimpleNamespace(
        server=SimpleNamespace(key=("agents", "files"), name="files"),
        spec=SimpleNamespace(limits=ServerLimits()),
        tool=SimpleNamespace(name="read"),
    )
    answer = asyncio.create_task(dispatcher.dispatch(call, cast(ResolvedTool, resolved), {}))
    for _ in range(10):
        await asyncio.sleep(0)
    pool.replace()
    recorded.set_result(None)
    assert await answer == {"session": "new"}
