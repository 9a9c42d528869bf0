"""Approvals of running executions in their statuses: writes are bounded over all executions."""

import asyncio
from datetime import UTC, datetime
from typing import Any, cast

from tests.support.until import until

from mcp_exec_api.approvals import Approval, ApprovalState
from mcp_exec_common.broker.client import BrokerClient, ExecutionCalls
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.core.executions.deadline import RunDeadline
from mcp_exec_operator.core.executions.execution import Execution
from mcp_exec_operator.core.executions.specs import SpecCache
from mcp_exec_operator.core.executions.writer import ExecutionStatusWriter
from mcp_exec_operator.features.tools.part import ApprovalWaits, ToolCallTracker

AT = datetime(2026, 11, 21, tzinfo=UTC)


class SlowWriter:
    """A writer whose writes end when the test allows it."""

    def __init__(self) -> None:
        self.open = 0
        self.most = 0
        self.allowed = asyncio.Event()

    async def write_approvals(self, execution: Execution, approvals: object, *, waited_seconds: float) -> None:
        self.open += 1
        self.most = max(self.most, self.open)
        await self.allowed.wait()
        self.open -= 1

    async def record_event(self, *_: object) -> None:
        """Record nothing."""


class PendingBroker:
    """A broker with a pending approval for each execution."""

    def __init__(self) -> None:
        self.asked = 0

    async def get_calls(self, uid: str) -> ExecutionCalls:
        self.asked += 1
        state = ApprovalState.PENDING
        given: dict[str, Any] = {"tool": "a.b", "arguments": "{}", "requested_at": AT, "expires_at": AT}
        return ExecutionCalls(approvals=[Approval(id=f"approval-{uid}", state=state, **given)])


def build_execution(number: int) -> Execution:
    meta = {"name": f"e-{number}", "namespace": "agents", "uid": f"u-{number}", "resourceVersion": "1"}
    specs = SpecCache(api=cast(OperatorApi, None))
    return Execution.from_object({"metadata": meta, "spec": {}}, specs=specs)


async def test_approvals_of_many_executions_are_written_few_at_a_time() -> None:
    writer, broker, tasks = SlowWriter(), PendingBroker(), TaskRegistry()
    slots = asyncio.Semaphore(8)
    trackers = [
        ToolCallTracker(
            execution=build_execution(number),
            broker=cast(BrokerClient, broker),
            writer=cast(ExecutionStatusWriter, writer),
            tasks=tasks,
            approval_writes=slots,
            waits=ApprovalWaits(limit_seconds=0),
            deadline=RunDeadline(uid=f"u-{number}", seconds=60),
        )
        for number in range(1000)
    ]
    for tracker in trackers:
        tracker.watch_approvals()
    await until(lambda: broker.asked == 1000)
    assert writer.open == 8
    writer.allowed.set()
    await until(lambda: writer.open == 0 and not slots.locked())
    assert writer.most == 8
    for tracker in trackers:
        await tracker.stop()
