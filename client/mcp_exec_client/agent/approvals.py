"""Tool calls that wait for an approval: the application's decision about each."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from mcp_exec_client.client import AsyncClient
from mcp_exec_client.errors import McpExecError

log = logging.getLogger(__name__)
FAILED_COMMENT: Final = "the application could not decide"
ApprovalAnswer: TypeAlias = bool | str | None
"""True approves and False denies the call; a text denies it with this comment; None leaves it to others."""


@dataclass(frozen=True, kw_only=True)
class ApprovalQuestion:
    """A tool call that waits for a person's decision."""

    tool: str
    """Tool as SERVER.TOOL."""
    arguments: str
    """Arguments as JSON, with secrets and personal data redacted; each long value is cut."""
    arguments_complete: bool = True
    """Whether `arguments` has all of them."""
    execution: str | None = None
    """Execution whose code made the call; None for a direct call."""


OnApproval: TypeAlias = Callable[[ApprovalQuestion], Awaitable[ApprovalAnswer]]


async def ask_application(on_approval: OnApproval, question: ApprovalQuestion) -> ApprovalAnswer:
    """Return the application's answer. A failure of the application denies the call."""
    try:
        return await on_approval(question)
    except Exception:
        log.exception("the application failed to decide about a call of %s", question.tool)
        return FAILED_COMMENT


async def decide_approval(client: AsyncClient, execution: str, approval: str, on_approval: OnApproval) -> None:
    """Let the application decide about a call of running code. A decision that comes too late is ignored."""
    try:
        found = next((each for each in await client.approvals(execution) if each.id == approval), None)
        if found is None:
            return
        question = ApprovalQuestion(
            tool=found.tool,
            arguments=found.arguments,
            arguments_complete=found.arguments_complete,
            execution=execution,
        )
        answer = await ask_application(on_approval, question)
        digest = found.arguments_digest or None
        if answer is True:
            await client.approve(execution, approval, arguments_digest=digest)
        elif answer is not None:
            comment = answer if isinstance(answer, str) else None
            await client.deny(execution, approval, comment=comment, arguments_digest=digest)
    except McpExecError as error:
        log.warning("approval %s of %s was not decided: %s", approval, execution, error)
