"""Approvals of tool calls: what waits, and what a person decided."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from mcp_exec_api.meta import MicroTime, Model


class ApprovalChoice(StrEnum):
    """What became of a tool call that needs somebody's consent."""

    APPROVE = "Approve"
    DENY = "Deny"


class ApprovalDecision(Model):
    """Somebody's word on one tool call that waits for it."""

    id: Annotated[str, Field(min_length=1, max_length=64)]
    """The approval's id, from `status.approvals`."""
    decision: ApprovalChoice
    """Whether the call may be made."""
    by: Annotated[str | None, Field(max_length=253)] = None
    """Who decided, as the gateway knows them."""
    comment: Annotated[str | None, Field(max_length=1024)] = None
    """Why; the code sees it where the call was denied."""


class ApprovalState(StrEnum):
    """Where a call that needs consent is."""

    PENDING = "Pending"
    APPROVED = "Approved"
    DENIED = "Denied"
    EXPIRED = "Expired"
    """Nobody decided in time; the call was denied."""
    WITHDRAWN = "Withdrawn"
    """The code ended or gave the call up before anybody decided."""


class Approval(Model):
    """A tool call that needs somebody's consent."""

    id: str
    """What it is decided on by."""
    tool: str
    """SERVER.TOOL."""
    arguments: str
    """The arguments as JSON, redacted and bounded."""
    state: ApprovalState
    """Where it is."""
    requested_at: MicroTime
    """When the code made the call."""
    expires_at: MicroTime
    """When it is denied, if nobody has decided."""
    decided_by: str | None = None
    """Who decided."""
