"""Typed results of the gateway. Fields and values that only a newer gateway has are accepted and ignored."""

from typing import TypeVar

from pydantic import BaseModel, RootModel, ValidationError

from mcp_exec_api.meta import LENIENT
from mcp_exec_api.wire import executions
from mcp_exec_api.wire.executions import ExecutionList, ExecutionSummary, PendingApprovalList, UsedWorkspace
from mcp_exec_api.wire.records import KeyUseList, NewUsageReport
from mcp_exec_api.wire.rollouts import Assignment, RolloutReport
from mcp_exec_api.wire.sessions import Session
from mcp_exec_api.wire.skills import Skill
from mcp_exec_api.wire.stats import NamespaceStats, PoolCapacity
from mcp_exec_api.wire.tools import CallList, FoundTool, ServerTool, ServerTools, ToolCallRecord
from mcp_exec_api.wire.usage import UsageReport
from mcp_exec_api.wire.version import ReleaseVersion
from mcp_exec_api.wire.workspaces import CommitResult, Workspace, WorkspaceFile, WorkspaceVersion
from mcp_exec_client.errors import McpExecError, UnexpectedResponse
from mcp_exec_client.state.results import ExecutionArtifact
from mcp_exec_client.transport import HttpReply

__all__ = [
    "Assignment",
    "CallList",
    "CommitResult",
    "Execution",
    "ExecutionArtifact",
    "ExecutionFailed",
    "ExecutionList",
    "ExecutionSummary",
    "FoundTool",
    "KeyUseList",
    "NamespaceStats",
    "NewUsageReport",
    "PendingApprovalList",
    "PoolCapacity",
    "ReleaseVersion",
    "RolloutReport",
    "ServerTool",
    "ServerTools",
    "Session",
    "Skill",
    "ToolCallRecord",
    "UsageReport",
    "UsedWorkspace",
    "Workspace",
    "WorkspaceFile",
    "WorkspaceVersion",
    "describe_invalid",
    "parse_reply",
]

Parsed = TypeVar("Parsed", bound=BaseModel)


class Execution(executions.Execution):
    """One execution, as it was at the time of the response."""

    artifacts: list[ExecutionArtifact] = []  # type: ignore[assignment] # the same with methods
    """Files, figures and tables that the code produced: `execution.artifacts[0].read()` and `.save()`."""

    def raise_for_failure(self) -> None:
        """Raise ExecutionFailed if the execution has ended without success."""
        if self.finished and not self.succeeded:
            raise ExecutionFailed(self)


class ExecutionFailed(McpExecError):
    """An execution ended without success. Only `Execution.raise_for_failure` and helpers that call it raise this."""

    def __init__(self, outcome: Execution) -> None:
        error = outcome.error
        cause = f": {error.summary}" if error else ""
        super().__init__(f"{outcome.name}: {outcome.phase} {outcome.reason}".rstrip() + cause)
        self.execution = outcome.name
        self.outcome = outcome


class FoundTools(RootModel[list[FoundTool]]):
    """Tools that match a search, best match first."""


def parse_reply(result: type[Parsed], reply: HttpReply) -> Parsed:
    """Parse a response's body. Raises UnexpectedResponse if it is not the gateway's."""
    try:
        return result.model_validate_json(reply.content, extra="ignore", context=LENIENT)
    except ValidationError as error:
        raise UnexpectedResponse(
            f"{reply.address}: the response is not a gateway's: {describe_invalid(error)}"
        ) from error


def describe_invalid(error: ValidationError) -> str:
    """Return the first invalid field and why, without its value."""
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}"
