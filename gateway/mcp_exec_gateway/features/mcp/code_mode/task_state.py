"""A run as a task of MCP: its state in the words of the protocol.

A task is an execution, and its id the execution's name: the gateway stores nothing, and any replica answers. Sources:
revision 2025-11-25, where the client decides which call is a task, and the extension of revision 2026-07-28 (SEP-2663),
where the server does.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal, Self

from mcp_types import CallToolResult, ElicitRequest, Result, Task, TaskStatus

from mcp_exec_api.code_execution import Phase, is_finished
from mcp_exec_api.meta import now
from mcp_exec_common.kube.objects import Object

EXTENSION: Final = "io.modelcontextprotocol/tasks"
FIRST_REVISION: Final = "2025-11-25"
"""First revision with tasks. Those before ignore what they do not know."""
POLL_MS: Final = 2000
"""Milliseconds between two looks at a task that the gateway asks clients for."""
_RELATED: Final = "io.modelcontextprotocol/related-task"
_MILLISECOND: Final = timedelta(milliseconds=1)
_STATUSES: Final[dict[str, TaskStatus]] = {
    Phase.SUCCEEDED: "completed",
    Phase.FAILED: "failed",
    Phase.TIMED_OUT: "failed",
    Phase.CANCELLED: "cancelled",
}


@dataclass(frozen=True, kw_only=True)
class TaskState:
    """An execution in the words of the protocol."""

    id: str
    status: TaskStatus
    """`failed` if the code failed: see TaskHandle for what the extension says."""
    message: str
    created_at: datetime
    updated_at: datetime
    ttl: timedelta
    """Time from the creation until the execution may be deleted. It grows while the run has not begun."""
    is_cancelling: bool
    """Whether the cancellation is requested and not done."""

    @classmethod
    def read(cls, execution: Object, *, clock: datetime | None = None) -> Self:
        """Return the state of an execution."""
        metadata, spec, status = execution["metadata"], execution["spec"], execution.get("status") or {}
        phase = status.get("phase") or Phase.PENDING
        times = {name: datetime.fromisoformat(text) for name, text in status.items() if name.endswith("At") and text}
        created = times.get("createdAt") or datetime.fromisoformat(metadata["creationTimestamp"])
        limit = timedelta(seconds=spec.get("timeoutSeconds", 0))
        end = times.get("finishedAt") or (times.get("startedAt") or clock or now()) + limit
        cancelling = bool(spec.get("cancelRequested")) and not is_finished(execution)
        return cls(
            id=metadata["name"],
            status=_STATUSES.get(phase, "working"),
            message=_describe(phase, status.get("reason") or "", cancelling=cancelling),
            created_at=created,
            updated_at=max(created, *times.values()) if times else created,
            ttl=end - created + timedelta(seconds=spec.get("ttlSecondsAfterFinished", 0)),
            is_cancelling=cancelling,
        )

    def to_legacy(self) -> dict[str, Any]:
        """Return the fields of a task of revision 2025-11-25, where a requested cancellation is final."""
        task = Task(
            task_id=self.id,
            status="cancelled" if self.is_cancelling else self.status,
            status_message=self.message,
            created_at=_format_time(self.created_at),
            last_updated_at=_format_time(self.updated_at),
            ttl=self.ttl // _MILLISECOND,
            poll_interval=POLL_MS,
        )
        return task.model_dump()


def _describe(phase: str, reason: str, *, cancelling: bool) -> str:
    if cancelling:
        return "is being cancelled"
    words = {Phase.PENDING: "waits for a pod", Phase.RUNNING: "runs"}.get(Phase(phase), phase)
    return f"{words}: {reason}" if reason else words


def _format_time(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TaskHandle(Result):
    """A task of the extension. As the result of a call it says that the run goes on.

    `failed` stands for an error of the protocol there: code that failed is `completed`, with a result that says so.
    """

    task_id: str
    status: TaskStatus
    status_message: str
    created_at: str
    last_updated_at: str
    ttl_ms: int
    poll_interval_ms: int = POLL_MS
    input_requests: dict[str, ElicitRequest] | None = None
    """Questions to the user, by a key that the answer repeats."""
    result: CallToolResult | None = None
    result_type: Literal["task", "complete"] = "task"

    @classmethod
    def of(cls, state: TaskState) -> Self:
        """Return the handle of a state."""
        return cls(
            task_id=state.id,
            status="completed" if state.status == "failed" else state.status,
            status_message=state.message,
            created_at=_format_time(state.created_at),
            last_updated_at=_format_time(state.updated_at),
            ttl_ms=state.ttl // _MILLISECOND,
        )


def relate_to_task(task_id: str) -> dict[str, Any]:
    """Return the `_meta` of a message that belongs to a task of revision 2025-11-25."""
    return {_RELATED: {"taskId": task_id}}
